import { statSync, readFileSync } from 'node:fs';
import { CayError } from '@cay/sdk/protocol';
import type { BucketCredentials } from './bucket.ts';

const PROFILE = 'default';

/**
 * Credentials in a file in the form of AWS (`[default]`, `aws_access_key_id`, `aws_secret_access_key`,
 * `aws_session_token`), read again when the file has changed. No error has anything of the file in it.
 */
export function credentialsInFile(path: string): () => BucketCredentials {
  let known: { changed: string; credentials: BucketCredentials } | undefined;
  return () => {
    try {
      const { mtimeMs, ino, size } = statSync(path);
      const changed = `${mtimeMs} ${ino} ${size}`;
      if (known?.changed !== changed) known = { changed, credentials: parsed(readFileSync(path, 'utf8')) };
      return known.credentials;
    } catch (error) {
      const { code } = error as NodeJS.ErrnoException;
      throw new CayError('failed_precondition', `Cannot read credentials from "${path}"`, {
        hint:
          code === undefined || error instanceof CayError
            ? `it needs a profile [${PROFILE}] with aws_access_key_id and aws_secret_access_key`
            : `the system says ${code}`,
      });
    }
  };
}

function parsed(text: string): BucketCredentials {
  const values = new Map<string, string>();
  let profile = '';
  for (const line of text.split('\n')) {
    const section = /^\s*\[\s*([^\]]+?)\s*\]/.exec(line)?.[1];
    if (section !== undefined) profile = section;
    const [, name, value] = /^\s*(aws_[a-z_]+)\s*=\s*(\S+)\s*$/.exec(line) ?? [];
    if (name !== undefined && profile === PROFILE) values.set(name, value!);
  }
  const accessKeyId = values.get('aws_access_key_id');
  const secretKey = values.get('aws_secret_access_key');
  const sessionToken = values.get('aws_session_token');
  if (accessKeyId === undefined || secretKey === undefined)
    throw new CayError('failed_precondition', 'no credentials');
  return { accessKeyId, secretKey, ...(sessionToken !== undefined && { sessionToken }) };
}
