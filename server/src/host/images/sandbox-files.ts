/**
 * What every sandbox needs beside the files of its image: below them the directories that others are mounted
 * on, above them the accounts and the files that name the machine. Both are steps of the chain like layers,
 * so that they are unpacked with the same care, and no program of the image is needed.
 */
import { byteReader } from '../../lib/byte-reader.ts';
import { encodeHeader } from '../../lib/tar/header.ts';
import { padding, tarEnd } from '../../lib/tar/pack.ts';
import { readTar } from '../../lib/tar/read.ts';
import { isCayError } from '@cay/sdk/protocol';
import { packTree, type Tree } from '../archives/tree-process.ts';
import { USER } from '../sandbox-user.ts';
import { ETC_FILES } from '../templates/base-recipe.ts';
import { withGroup, withUser } from './accounts.ts';

/** Named like layers, by what is in them. */
export const BELOW = 'cay-directories-1';
export const ABOVE = 'cay-accounts-1';

const MOST_ACCOUNT_BYTES = 1024 * 1024;
const MOST_VOLUMES = 256;

/** Path and mode, parents first. */
export const DIRECTORIES: readonly (readonly [string, number])[] = [
  ['.', 0o755],
  ['dev', 0o755],
  ['etc', 0o755],
  ['home', 0o755],
  ['proc', 0o555],
  ['root', 0o700],
  ['run', 0o755],
  ['sys', 0o555],
  ['tmp', 0o1777],
  ['var', 0o755],
  ['var/tmp', 0o1777],
];

export async function* directoriesBelow(): AsyncGenerator<Uint8Array, void, undefined> {
  for (const [path, mode] of DIRECTORIES) yield directory(path, mode, 0);
  yield tarEnd();
}

/** `tree` is the one of the image's last layer. */
export async function* filesAbove(
  tree: Tree,
  { guestBinary, volumes }: { guestBinary: string; volumes: readonly string[] },
): AsyncGenerator<Uint8Array, void, undefined> {
  const [passwd, group] = [await accountFile(tree, 'etc/passwd'), await accountFile(tree, 'etc/group')];
  const newPasswd = passwd === undefined ? undefined : withUser(passwd, { shell: '/bin/sh' });
  const newGroup = group === undefined ? undefined : withGroup(group);
  if (newPasswd !== undefined) {
    yield* file('etc/passwd', newPasswd);
    yield directory(USER.home.slice(1), 0o755, USER.uid);
  }
  if (newGroup !== undefined) yield* file('etc/group', newGroup);
  for (const name of ['hosts', 'resolv.conf'] as const) yield* file(`etc/${name}`, ETC_FILES[name]!);
  for (const volume of volumes.slice(0, MOST_VOLUMES)) {
    const parts = volume.split('/').filter((part) => part !== '' && part !== '.');
    if (parts.length > 0 && !parts.includes('..') && !(await exists(tree, parts.join('/'))))
      yield directory(parts.join('/'), 0o755, 0);
  }
  yield tarEnd();

  /** Its text, empty if there is none; nothing for what only the image's makers know, such as a link. */
  async function accountFile({ path, ids }: Tree, name: string): Promise<string | undefined> {
    try {
      const archive = packTree({ path, ids }, { guestBinary, paths: [name] });
      for await (const entry of readTar(byteReader(archive), { maxExtendedBytes: 64 * 1024 })) {
        if (entry.type !== 'file' || entry.sizeBytes > MOST_ACCOUNT_BYTES) return undefined;
        const parts: Uint8Array[] = [];
        for await (const part of entry.content) parts.push(part);
        return Buffer.concat(parts).toString('utf8');
      }
      return '';
    } catch (error) {
      if (isCayError(error, 'not_found')) return '';
      // A link in the place of its directory.
      if (isCayError(error, 'failed_precondition') || isCayError(error, 'invalid_argument')) return undefined;
      throw error;
    }
  }

  async function exists({ path, ids }: Tree, name: string): Promise<boolean> {
    try {
      for await (const _ of packTree({ path, ids }, { guestBinary, paths: [name] })) return true;
      return true;
    } catch (error) {
      return !isCayError(error, 'not_found');
    }
  }
}

function directory(path: string, mode: number, id: number): Uint8Array {
  const rights = { mode, uid: id, gid: id };
  return encodeHeader({
    name: path,
    type: 'directory',
    sizeBytes: 0,
    modifiedAtMs: 0,
    target: '',
    ...rights,
  });
}

function* file(path: string, text: string): Generator<Uint8Array, void, undefined> {
  const content = Buffer.from(text);
  const rights = { mode: 0o644, uid: 0, gid: 0 };
  yield encodeHeader({
    name: path,
    type: 'file',
    sizeBytes: content.length,
    modifiedAtMs: 0,
    target: '',
    ...rights,
  });
  if (content.length > 0) yield content;
  const rest = padding(content.length);
  if (rest.length > 0) yield rest;
}
