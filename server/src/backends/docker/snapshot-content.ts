/** The files of a snapshot, read from a container of it that does not run. No symlink is followed. */
import { CayError } from '@cay/sdk/protocol';
import { byteReader } from '../../lib/byte-reader.ts';
import { ETC_FILES } from '../../host/templates/base-recipe.ts';
import { packFile, tarEnd } from '../../lib/tar/pack.ts';
import { rawEntries, renamedHead, type RawEntry } from '../../lib/tar/raw-entries.ts';
import type { CallScope } from '../backend.ts';
import { passEntries } from '../support/pass-entries.ts';
import type { DockerClient } from './docker-client.ts';

/** As Go counts the bits of a mode. */
const TYPE_BITS = { directory: 2 ** 31, symlink: 2 ** 27, device: 2 ** 26, pipe: 2 ** 25, socket: 2 ** 24 };
const MOST_PATHS = 1000;

/** What the engine and the guest have put there. The directories themselves stay. */
const LEFT_OUT = /^(\.dockerenv|\.cay)$|^(\.cay|dev|proc|sys)\//;
const isDevice = ({ letter }: RawEntry) => letter === '3' || letter === '4';

/** The engine mounts a file of its own there and leaves an empty one, which is of no use elsewhere. */
const isMountPoint = ({ name, letter, sizeBytes }: RawEntry) =>
  (name === 'etc/hosts' || name === 'etc/resolv.conf') && letter === '0' && sizeBytes === 0;

export const isLeftOut = (name: string): boolean => LEFT_OUT.test(name);

/** All files, as a pax archive with names relative to the root. */
export async function* exportFiles(
  client: DockerClient,
  container: string,
  action: string,
  { signal }: CallScope = {},
): AsyncIterable<Uint8Array> {
  const stream = await client.stream(`/containers/${container}/export`, { action, signal });
  if (!stream) throw new CayError('not_found', `Cannot ${action}: its files are gone`);
  const empty = new Set<string>();
  yield* passEntries(stream, (entry) => {
    if (isMountPoint(entry)) empty.add(entry.name);
    return isLeftOut(entry.name) || isDevice(entry) || isMountPoint(entry) ? undefined : entry.head;
  });
  for (const name of empty) yield* packFile(name, Buffer.from(ETC_FILES[name.slice('etc/'.length)] ?? ''));
  yield tarEnd();
}

/** A regular file's content, or a symlink's target. */
export async function* readFileOf(
  client: DockerClient,
  container: string,
  path: string,
  { signal }: CallScope = {},
): AsyncIterable<Uint8Array> {
  const action = `read ${JSON.stringify(path.slice(0, 200))}`;
  const type = await requirePath(client, container, path, { action, signal });
  if (type !== 'file' && type !== 'symlink')
    throw new CayError('failed_precondition', `Cannot ${action}: it is neither a file nor a symlink`);
  const reader = byteReader(await archiveOf(client, container, path, { action, signal }));
  try {
    for await (const entry of rawEntries(reader)) {
      if (entry.letter === '2') yield Buffer.from(entry.target, 'latin1');
      else yield* entry.content;
      return;
    }
  } finally {
    await reader.close();
  }
}

/** These paths and all below them. */
export async function* tarPathsOf(
  client: DockerClient,
  container: string,
  paths: readonly string[],
  scope: CallScope = {},
): AsyncIterable<Uint8Array> {
  if (paths.length === 0 || paths.length > MOST_PATHS)
    throw new CayError(
      'invalid_argument',
      `Cannot archive ${paths.length} paths: from 1 to ${MOST_PATHS} can be`,
    );
  for (const path of paths) {
    const action = `archive ${JSON.stringify(path.slice(0, 200))}`;
    const parts = partsOf(path, action);
    if (parts.length === 0) {
      const stream = await client.stream(`/containers/${container}/export`, { action, signal: scope.signal });
      if (!stream) throw gone(action);
      yield* passEntries(stream, (entry) =>
        isLeftOut(entry.name) || isDevice(entry) ? undefined : entry.head,
      );
      continue;
    }
    await requirePath(client, container, path, { action, signal: scope.signal });
    const above = Buffer.from(parts.slice(0, -1).join('/')).toString('latin1');
    const placed = (name: string) => (above === '' ? name : `${above}/${name}`);
    const stream = await archiveOf(client, container, path, { action, signal: scope.signal });
    yield* passEntries(stream, (entry) =>
      isDevice(entry) || isLeftOut(placed(entry.name))
        ? undefined
        : renamedHead(entry, placed(entry.name), entry.letter === '1' ? placed(entry.target) : entry.target),
    );
  }
  yield tarEnd();
}

interface Call {
  action: string;
  signal: AbortSignal | undefined;
}

async function archiveOf(
  client: DockerClient,
  container: string,
  path: string,
  { action, signal }: Call,
): Promise<AsyncIterable<Uint8Array>> {
  const query = { path: `/${partsOf(path, action).join('/')}` };
  const stream = await client.stream(`/containers/${container}/archive`, { action, query, signal });
  if (!stream) throw gone(action);
  return stream;
}

const gone = (action: string) => new CayError('not_found', `Cannot ${action}: there is no such file`);

function partsOf(path: string, action: string): string[] {
  const parts = path.split('/').filter((part) => part !== '' && part !== '.');
  if (path.length > 4096 || path.includes('\0') || parts.includes('..'))
    throw new CayError('invalid_argument', `Cannot ${action}: it is no path without ".."`);
  return parts;
}

type FileType = keyof typeof TYPE_BITS | 'file';

/**
 * The type of what is there. The engine follows symlinks on the way, so every directory on it is looked at.
 */
async function requirePath(
  client: DockerClient,
  container: string,
  path: string,
  { action, signal }: Call,
): Promise<FileType> {
  const parts = partsOf(path, action);
  let type: FileType = 'directory';
  for (let length = 1; length <= parts.length; length++) {
    if (type !== 'directory') throw gone(action);
    const query = { path: `/${parts.slice(0, length).join('/')}` };
    const text = await client.header(`/containers/${container}/archive`, 'x-docker-container-path-stat', {
      action,
      query,
      ...(signal && { signal }),
    });
    if (text === undefined) throw gone(action);
    const { mode } = JSON.parse(Buffer.from(text, 'base64').toString()) as { mode: number };
    const isSet = (bit: number) => Math.floor(mode / bit) % 2 === 1;
    type =
      (Object.keys(TYPE_BITS) as (keyof typeof TYPE_BITS)[]).find((each) => isSet(TYPE_BITS[each])) ?? 'file';
  }
  return type;
}
