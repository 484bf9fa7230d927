/**
 * Unpacks an archive that a sandbox made, on this machine. Nothing in it is trusted.
 *
 * The package "tar" reads the format and writes the files. It places nothing through a symlink, of the
 * archive or of this machine. Each entry is checked here first: a name that is absolute or climbs ends the
 * whole copy. Links that lead outside, devices and the like are left out and reported. Files belong to the
 * user who runs this and have neither setuid nor setgid.
 */
import { lstatSync, rmSync, type Stats } from 'node:fs';
import { chmod, utimes } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { CayError } from '@cay/sdk/client';
import { errnoOf, errnoText } from '@cay/sdk/system-error';
import { UnpackSync, type ReadEntry } from 'tar';

/** What a sandbox made never runs with the rights of another user here. */
const PERMISSIONS = 0o777;
/** A directory has to be writable until it is filled. */
const OWNER_ALL = 0o700;

export interface Unpacked {
  entries: number;
  bytes: number;
  /** Names of what was left out, and why. */
  leftOut: { name: string; why: string }[];
}

const MAX_EXTENSION = 1024 * 1024;
const MAX_DEPTH = 1024;
const MAX_LEFT_OUT = 1000;
/** Entries without content cost the sender little, and a file each here. */
const MAX_ENTRIES = 10_000_000;
const FILES: ReadonlySet<string> = new Set(['File', 'OldFile', 'ContiguousFile']);
/** What compressed data begins with. It is refused: its bytes are counted before they are unpacked. */
const COMPRESSED = [Buffer.from([0x1f, 0x8b]), Buffer.from([0x28, 0xb5, 0x2f, 0xfd])];
const BLOCK = 512;

interface Directory {
  path: string;
  mode: number;
  mtime: Date;
}

/** Precondition: `dir` exists. */
export async function unpack(
  dir: string,
  data: AsyncIterable<Uint8Array>,
  onProgress: (bytes: number) => void = () => {},
): Promise<Unpacked> {
  const result: Unpacked = { entries: 0, bytes: 0, leftOut: [] };
  const directories: Directory[] = [];
  const state: { failure?: Error; unfinished?: string } = {};
  const unpacker = new UnpackSync({
    cwd: dir,
    strict: true,
    preservePaths: false,
    preserveOwner: false,
    // The mode of the entry as it is, whatever the umask of this process.
    chmod: true,
    processUmask: 0,
    maxMetaEntrySize: MAX_EXTENSION,
    maxDepth: MAX_DEPTH,
    filter(_, read) {
      const entry = read as ReadEntry;
      result.entries += 1;
      if (result.entries > MAX_ENTRIES) throw new Error(`it has more than ${MAX_ENTRIES} entries`);
      const parts = partsOf(entry.path);
      if (parts.length === 0 && entry.type === 'Directory') return false;
      const why = admit(dir, parts, entry);
      if (why === undefined) return true;
      if (result.leftOut.length < MAX_LEFT_OUT) result.leftOut.push({ name: parts.join('/'), why });
      return false;
    },
    onReadEntry(entry) {
      const path = join(dir, ...partsOf(entry.path));
      if (entry.type === 'Directory')
        directories.push({ path, mode: (entry.mode ?? 0) & PERMISSIONS, mtime: entry.mtime ?? new Date() });
      entry.mode = ((entry.mode ?? 0o600) & PERMISSIONS) | (entry.type === 'Directory' ? OWNER_ALL : 0);
      if (!FILES.has(entry.type)) return;
      state.unfinished = path;
      let left = entry.size;
      entry.on('data', (part: Buffer) => (left -= part.length));
      entry.on('end', () => {
        // An entry also ends when the archive is cut off.
        if (left > 0) return;
        state.unfinished = undefined;
        onProgress((result.bytes += entry.size));
      });
    },
  });
  unpacker.on('error', (error: Error) => (state.failure ??= error));
  try {
    for await (const chunk of plain(data)) {
      unpacker.write(Buffer.from(chunk.buffer, chunk.byteOffset, chunk.byteLength));
      if (state.failure) throw state.failure;
    }
    unpacker.end();
    if (state.failure) throw state.failure;
    // The deepest first: what is done in a directory changes its time.
    for (const { path, mode, mtime } of directories.reverse()) {
      await chmod(path, mode);
      await utimes(path, mtime, mtime);
    }
    return result;
  } catch (error) {
    // A file that is cut off is not left behind as if it were whole.
    if (state.unfinished !== undefined) rmSync(state.unfinished, { force: true });
    throw failureOf(dir, error);
  }
}

/** Refuses what is compressed, and adds nothing: an archive that ends without its zeros is whole. */
async function* plain(data: AsyncIterable<Uint8Array>): AsyncGenerator<Uint8Array, void, undefined> {
  let head: Buffer | undefined = Buffer.alloc(0);
  for await (const chunk of data) {
    if (!head) {
      yield chunk;
      continue;
    }
    head = Buffer.concat([head, chunk]);
    if (head.length < BLOCK) continue;
    requirePlain(head);
    yield head;
    head = undefined;
  }
  if (head && head.length > 0) throw new Error('it is cut off');
}

function requirePlain(head: Buffer): void {
  if (COMPRESSED.some((magic) => head.subarray(0, magic.length).equals(magic)))
    throw new Error('it is compressed');
}

/** Throws for a name that does not stay below. */
function partsOf(name: string): string[] {
  const parts = name.split('/').filter((part) => part !== '' && part !== '.');
  if (name.startsWith('/') || name.includes('\u0000') || parts.includes('..')) {
    throw new CayError('permission_denied', `Refused to unpack "${name}": it would leave the directory`, {
      hint: 'the sandbox made a hostile archive',
    });
  }
  return parts;
}

/** The reason to leave an entry out. Throws for what ends the whole copy. */
function admit(dir: string, parts: readonly string[], entry: ReadEntry): string | undefined {
  if (parts.length === 0) return 'it has no name';
  const isDirectory = entry.type === 'Directory';
  const there = statOf(join(dir, ...parts));
  if (there && there.isDirectory() !== isDirectory)
    throw new Error(`"${parts.join('/')}" is there and ${isDirectory ? 'not a directory' : 'a directory'}`);
  if (isDirectory || FILES.has(entry.type)) return undefined;
  const target = entry.linkpath ?? '';
  if (entry.type === 'SymbolicLink')
    return staysInside(parts, target) ? undefined : `it leads to "${target}", outside`;
  if (entry.type !== 'Link') return 'it is a device or something else that is not copied';
  const from = partsOf(target);
  requireDirectories(dir, from.slice(0, -1));
  if (from.length > 0 && statOf(join(dir, ...from))?.isFile()) return undefined;
  return `"${target}", which it is a link to, is no file`;
}

/**
 * Whether a symlink can only ever lead below. Climbing comes first and not beyond the top; after a
 * name it is refused, because that name may itself be a link to somewhere less deep.
 */
export function staysInside(parts: readonly string[], target: string): boolean {
  if (target === '' || target.startsWith('/') || target.includes('\u0000')) return false;
  const steps = target.split('/').filter((step) => step !== '' && step !== '.');
  const climbs = steps.findIndex((step) => step !== '..');
  const up = climbs < 0 ? steps.length : climbs;
  return up <= parts.length - 1 && !steps.slice(up).includes('..');
}

function requireDirectories(dir: string, parts: readonly string[]): void {
  let path = dir;
  for (const part of parts) {
    path = join(path, part);
    if (!statOf(path)?.isDirectory()) throw through(path);
  }
}

function statOf(path: string): Stats | undefined {
  try {
    return lstatSync(path, { throwIfNoEntry: false });
  } catch (error) {
    // A part of the path is no directory; placing the entry fails with the reason.
    if (errnoOf(error) === 'ENOTDIR') return undefined;
    throw error;
  }
}

function through(path: string): CayError {
  return new CayError('permission_denied', `Refused to unpack through "${path}": it is not a directory`, {
    hint: `remove it, or copy to another place than "${dirname(path)}"`,
  });
}

function failureOf(dir: string, error: unknown): CayError {
  if (error instanceof CayError) return error;
  const { symlink, message, code } = error as Error & { symlink?: string; code?: string };
  if (typeof symlink === 'string') return through(symlink);
  const errno = errnoOf(error);
  const why = errno === undefined || code?.startsWith('TAR_') ? message : errnoText(errno);
  return new CayError('failed_precondition', `Cannot unpack into "${dir}": ${why}`, { cause: error });
}
