/**
 * The files by which programs of a sandbox trust the installation's authority. They are in `/run`; files that
 * belong to the sandbox stay as they are. The variables of commands name them
 * (`control/egress/trust-authority.ts`).
 */
import { isCayError } from '@cay/sdk/protocol';
import { collectBytes } from '../lib/bounded-bytes.ts';
import type { Files } from './guest.ts';

/** The authority alone, for programs that add it to what they trust. */
export const AUTHORITY_FILE = '/run/cay-authority.crt';
/** The sandbox's own certificates and the authority's, for programs that trust one file. */
export const BUNDLE_FILE = '/run/cay-ca-certificates.crt';
export const APT_FILE = '/run/cay-apt.conf';
/** Where systems have theirs. */
const SYSTEM_BUNDLES = ['/etc/ssl/certs/ca-certificates.crt', '/etc/pki/tls/certs/ca-bundle.crt'];
const MAX_BUNDLE_BYTES = 4 * 1024 * 1024;

/** Writes the files if they are not there. `files` are those of root. */
export async function putTrustFiles(files: Files, certificate: string): Promise<void> {
  // Written last, so that all are there if it is.
  if ((await textOf(files, AUTHORITY_FILE)) === certificate) return;
  const write = (path: string, text: string) => files.write(path, Buffer.from(text), { mode: 0o644 });
  await Promise.all([
    write(BUNDLE_FILE, `${await systemBundle(files)}\n${certificate}`),
    write(APT_FILE, `Acquire::https::CAInfo "${BUNDLE_FILE}";\n`),
  ]);
  await write(AUTHORITY_FILE, certificate);
}

async function systemBundle(files: Files): Promise<string> {
  for (const path of SYSTEM_BUNDLES) {
    const text = await textOf(files, path);
    if (text !== undefined) return text;
  }
  return '';
}

/** Undefined if there is none, or too much of it. */
async function textOf(files: Files, path: string): Promise<string | undefined> {
  try {
    const { data } = await files.read(path, { length: MAX_BUNDLE_BYTES + 1 });
    return (await collectBytes(data, MAX_BUNDLE_BYTES))?.toString();
  } catch (error) {
    if (isCayError(error, 'not_found')) return undefined;
    throw error;
  }
}
