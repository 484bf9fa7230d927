/** What file verbs make belongs to the user that they were called for. */
import { posix } from 'node:path';
import { CayError } from '@cay/sdk/protocol';
import { accountOf, filesOf, type EnvdContext } from './context.ts';
import { absent } from './entry-info.ts';

/** Those directories on the way to this one, itself included, that are not there yet; outermost first. */
async function missing(context: EnvdContext, path: string): Promise<string[]> {
  const found: string[] = [];
  for (let at = path; at !== '/'; at = posix.dirname(at)) {
    const info = await filesOf(context).stat(at, { follow: true }).catch(absent);
    if (info?.type === 'directory') break;
    if (info) throw new CayError('invalid_argument', `path is a file: ${at}`);
    found.unshift(at);
  }
  return found;
}

export async function give(context: EnvdContext, paths: readonly string[]): Promise<void> {
  const { uid, gid } = await accountOf(context);
  for (const path of paths) await filesOf(context).chown(path, `${uid}:${gid}`);
}

/** Makes a directory and those that it is in. */
export async function makeDirectories(context: EnvdContext, path: string): Promise<void> {
  const made = await missing(context, path);
  if (made.length === 0) return;
  await filesOf(context).mkdir(path);
  await give(context, made);
}
