/** Whom `--chown` means, by the accounts of the stage. */
import { CayError, isCayError } from '@cay/sdk/protocol';
import type { Files } from '../../../guest/guest.ts';

const MOST_BYTES = 1024 * 1024;

export async function ownerOf(
  files: Files,
  text: string,
  signal: AbortSignal,
): Promise<{ uid: number; gid: number }> {
  const [user = '', group] = text.split(':');
  const uid = number(user) ?? (await account(files, '/etc/passwd', user, signal))?.[2];
  const gid =
    number(group ?? user) ??
    (await account(files, '/etc/group', group ?? user, signal))?.[2] ??
    // A user without a group of the same name has the one of its account.
    (group === undefined ? (await account(files, '/etc/passwd', user, signal))?.[3] : undefined);
  if (uid !== undefined && gid !== undefined) return { uid: Number(uid), gid: Number(gid) };
  const what = uid === undefined ? `user "${user.slice(0, 60)}"` : `group "${(group ?? user).slice(0, 60)}"`;
  throw new CayError('failed_precondition', `There is no ${what} to give files to`);
}

function number(text: string): number | undefined {
  return /^[0-9]{1,5}$/.test(text) && Number(text) < 65_536 ? Number(text) : undefined;
}

async function account(
  files: Files,
  path: string,
  name: string,
  signal: AbortSignal,
): Promise<string[] | undefined> {
  const parts: Uint8Array[] = [];
  try {
    const { data } = await files.read(path, { length: MOST_BYTES, signal });
    for await (const part of data) parts.push(part);
  } catch (error) {
    if (!isCayError(error, 'not_found')) throw error;
  }
  const lines = Buffer.concat(parts).toString('utf8').split('\n');
  const found = lines.map((line) => line.split(':')).find(([each]) => each === name);
  return found && number(found[2] ?? '') !== undefined ? found : undefined;
}
