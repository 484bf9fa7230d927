/** Files as E2B's clients see them. */
import { posix } from 'node:path';
import { isCayError, type FileInfo } from '@cay/sdk/protocol';
import type { Files } from '../../../guest/guest.ts';
import { readMetadata } from './file-metadata.ts';
import { filesOf, type EnvdContext } from './context.ts';

const TYPES: Partial<Record<FileInfo['type'], string>> = {
  file: 'FILE_TYPE_FILE',
  directory: 'FILE_TYPE_DIRECTORY',
  symlink: 'FILE_TYPE_SYMLINK',
};
const MAX_LINKS = 40;
/** The latest time that a `Date` can have. Files may have later ones. */
const LAST_MS = 8.64e15;
/** Some filesystems give directories a size of 0. E2B programs expect a block. */
const DIRECTORY_BYTES = 4096;

export interface EntryInfo {
  name: string;
  type: string;
  path: string;
  /** 64-bit numbers are strings in this encoding. */
  size: string;
  mode: number;
  permissions: string;
  owner: string;
  group: string;
  modifiedTime: string;
  symlinkTarget?: string;
  metadata?: Record<string, string>;
}

/** A link has the type and mode of its target, and its own size and owner. */
export async function entryInfo(context: EnvdContext, info: FileInfo): Promise<EntryInfo> {
  const files = filesOf(context);
  const accounts = await context.accounts();
  const led = info.type === 'symlink' ? await follow(files, info) : undefined;
  const metadata = await readMetadata(context, info.path);
  const type = led ? led.info && TYPES[led.info.type] : TYPES[info.type];
  return {
    name: info.name,
    type: type ?? 'FILE_TYPE_UNSPECIFIED',
    path: info.path,
    size: String(info.type === 'directory' ? Math.max(info.sizeBytes, DIRECTORY_BYTES) : info.sizeBytes),
    mode: (led ? (led.info?.mode ?? 0) : info.mode) & 0o777,
    permissions: permissions(info),
    owner: accounts.userName(info.uid),
    group: accounts.groupName(info.gid),
    modifiedTime: new Date(Math.min(Math.max(info.modifiedAtMs, -LAST_MS), LAST_MS)).toISOString(),
    ...(led && { symlinkTarget: led.path }),
    ...(metadata && Object.keys(metadata).length > 0 && { metadata }),
  };
}

export async function statEntry(context: EnvdContext, path: string): Promise<EntryInfo> {
  return entryInfo(context, await filesOf(context).stat(path, { follow: false }));
}

/** The final target of a link; the link itself if it is broken. */
async function follow(
  files: Pick<Files, 'stat'>,
  link: FileInfo,
): Promise<{ path: string; info: FileInfo | undefined }> {
  let current = link;
  for (let steps = 0; current.type === 'symlink' && steps < MAX_LINKS; steps++) {
    const target = posix.resolve(posix.dirname(current.path), current.target ?? '');
    const next = await files.stat(target, { follow: false }).catch(absent);
    if (!next) return { path: link.path, info: undefined };
    current = { ...next, path: target };
  }
  return current.type === 'symlink'
    ? { path: link.path, info: undefined }
    : { path: current.path, info: current };
}

/** Maps `not_found` to undefined, and rethrows other errors. */
export function absent(error: unknown): undefined {
  if (
    isCayError(error, 'not_found') ||
    (isCayError(error) && ['ENOTDIR', 'ELOOP'].includes(String(error.details['errno'])))
  )
    return undefined;
  throw error;
}

/** The mode as Go writes it: `-rw-r--r--`, `dtrwxrwxrwx`, `Lrwxrwxrwx`. */
export function permissions({ type, mode }: Pick<FileInfo, 'type' | 'mode'>): string {
  const kinds: Record<FileInfo['type'], string> = {
    file: '',
    directory: 'd',
    symlink: 'L',
    block: 'D',
    char: 'D',
    fifo: 'p',
    socket: 'S',
  };
  const marks = [mode & 0o4000 && 'u', mode & 0o2000 && 'g', type === 'char' && 'c', mode & 0o1000 && 't'];
  const head = kinds[type] + marks.filter(Boolean).join('');
  const bits = Array.from('rwxrwxrwx', (letter, index) => (mode & (0o400 >> index) ? letter : '-'));
  return (head === '' ? '-' : head) + bits.join('');
}
