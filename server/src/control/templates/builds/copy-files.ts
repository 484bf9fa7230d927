/**
 * COPY and ADD: files of the context, of a here-document or of another sandbox, put where the instruction
 * says. No program of the sandbox is needed: its guest unpacks an archive that is made here.
 */
import { createHash } from 'node:crypto';
import { posix } from 'node:path';
import { createGunzip, createZstdDecompress } from 'node:zlib';
import { Readable } from 'node:stream';
import { CayError, isCayError, type FileInfo } from '@cay/sdk/protocol';
import { systemReason } from '@cay/sdk/system-error';
import type { Files, Guest } from '../../../guest/guest.ts';
import { byteReader } from '../../../lib/byte-reader.ts';
import { pathPattern } from '../../../lib/globs/path-pattern.ts';
import { encodeHeader, paddingOf, type Entry } from '../../../lib/tar/header.ts';
import { tarEnd } from '../../../lib/tar/pack.ts';
import { plainName } from '../../../lib/tar/plain-name.ts';
import { readTar } from '../../../lib/tar/read.ts';
import type { BuildContext, ContextEntry } from './build-context.ts';

/** One thing to copy: a tree whose root is a directory, or a single file. */
export interface Source {
  /** As it is written, for errors. */
  shown: string;
  /** What a single file is called where the target is a directory. */
  name: string;
  isDirectory: boolean;
  /** The entries, relative to the root of a directory; of a file, one entry without a name. */
  entries(): AsyncIterable<SourceEntry>;
}

export interface SourceEntry extends Entry {
  type: 'file' | 'directory' | 'symlink' | 'hardlink';
  content: AsyncIterable<Uint8Array>;
}

export interface Placing {
  guest: Guest;
  /** Absolute. A slash at its end makes it a directory. */
  target: string;
  owner?: { uid: number; gid: number };
  mode?: number;
  signal: AbortSignal;
}

const MOST_BYTES = 20 * 1024 ** 3;
export const isWild = (text: string) => /[*?[\\]/.test(text);

/** The entries of a context that a source means. Rejects `not_found` if there are none. */
export async function contextMatches(context: BuildContext, source: string): Promise<ContextEntry[]> {
  const path = posix.normalize(`/${source}`).slice(1).replace(/\/+$/, '');
  const missing = () =>
    new CayError('not_found', `"${source.slice(0, 200)}" is not in the build context`, {
      hint: 'paths are relative to the context, and .dockerignore may leave the file out',
      details: { what: 'source' },
    });
  if (!isWild(source)) {
    const entry = path === '' ? context.find('') : context.find(path, { follow: true });
    if (!entry) throw missing();
    return [entry];
  }
  const pattern = patternOf(path);
  const found: ContextEntry[] = [];
  for (const entry of context.all()) {
    await context.pace();
    if (entry.path !== '' && pattern.matches(entry.path)) found.push(entry);
  }
  if (found.length === 0) throw missing();
  found.sort((a, b) => (a.path < b.path ? -1 : 1));
  for (const [at, entry] of found.entries()) {
    if (entry.type !== 'symlink') continue;
    await context.pace();
    found[at] = context.find(entry.path, { follow: true }) ?? entry;
  }
  return found;
}

const MOST_PATTERN = 1024;

export function patternOf(text: string): ReturnType<typeof pathPattern> {
  if (text.length > MOST_PATTERN)
    throw new CayError('invalid_argument', `A pattern has at most ${MOST_PATTERN} characters`);
  try {
    return pathPattern(text);
  } catch (error) {
    throw new CayError('invalid_argument', `"${text.slice(0, 200)}" is no pattern: ${systemReason(error)}`);
  }
}

/** What a cached step knows these entries by: everything but times. */
export async function contentDigest(
  context: BuildContext,
  entries: readonly ContextEntry[],
): Promise<string> {
  const hash = createHash('sha256');
  for (const entry of entries)
    for (const { path, type, mode, digest, target } of context.below(entry)) {
      await context.pace();
      hash.update(`${JSON.stringify([path.slice(entry.path.length), type, mode, digest, target])}\n`);
    }
  return hash.digest('hex');
}

export function contextSource(context: BuildContext, entry: ContextEntry, shown: string): Source {
  const isDirectory = entry.type === 'directory';
  return {
    shown,
    name: posix.basename(entry.path),
    isDirectory,
    async *entries() {
      for (const each of context.below(entry)) {
        if (isDirectory && each.path === entry.path) continue;
        const { type, mode, modifiedAtMs, sizeBytes, target } = each;
        const name = isDirectory ? each.path.slice(entry.path === '' ? 0 : entry.path.length + 1) : '';
        yield { name, type, mode, modifiedAtMs, sizeBytes, target, uid: 0, gid: 0, content: each.content() };
      }
    },
  };
}

/** A here-document as a file. */
export function textSource(name: string, text: string): Source {
  const content = Buffer.from(text);
  return {
    shown: name,
    name,
    isDirectory: false,
    async *entries() {
      const rights = { mode: 0o644, uid: 0, gid: 0 };
      yield {
        name: '',
        type: 'file',
        sizeBytes: content.length,
        modifiedAtMs: 0,
        target: '',
        ...rights,
        content: once(content),
      };
    },
  };
}

async function* once(content: Uint8Array): AsyncGenerator<Uint8Array, void, undefined> {
  if (content.length > 0) yield content;
}

/** Files of another sandbox of the build, with their owners. Rejects `not_found`. */
export async function sandboxSources(guest: Guest, source: string, signal: AbortSignal): Promise<Source[]> {
  const files = guest.files('root');
  const path = posix.resolve('/', source);
  const paths = isWild(source) ? await matching(files, path, signal) : [path];
  const found: Source[] = [];
  for (const each of paths) {
    const info = await files.stat(each, { follow: true, signal }).catch((error: unknown) => {
      if (!isCayError(error, 'not_found')) throw error;
      throw new CayError('not_found', `"${source.slice(0, 200)}" is not in the stage it is copied from`, {
        cause: error,
        details: { what: 'source' },
      });
    });
    found.push(sandboxSource(files, each, info, source, signal));
  }
  if (found.length > 0) return found;
  throw new CayError(
    'not_found',
    `"${source.slice(0, 200)}" matches nothing in the stage it is copied from`,
    {
      details: { what: 'source' },
    },
  );
}

/** Looks only where the part of the pattern without wildcards leads, and as deep as it has parts. */
async function matching(files: Files, path: string, signal: AbortSignal): Promise<string[]> {
  const parts = path.split('/').slice(1);
  const wild = parts.findIndex(isWild);
  const start = `/${parts.slice(0, wild).join('/')}`;
  const pattern = patternOf(path);
  const found: string[] = [];
  for await (const { path: each } of files.list(start, { depth: parts.length - wild, signal })) {
    if (pattern.matches(each)) found.push(each);
    if (found.length > 100_000) throw new CayError('invalid_argument', `"${path}" matches too many files`);
  }
  return found.sort();
}

function sandboxSource(
  files: Files,
  path: string,
  info: FileInfo,
  shown: string,
  signal: AbortSignal,
): Source {
  const isDirectory = info.type === 'directory';
  return {
    shown,
    name: posix.basename(path),
    isDirectory,
    async *entries() {
      if (isDirectory) {
        for await (const entry of archived(await files.tar(path, { signal }), shown))
          if (entry.name !== '') yield entry;
        return;
      }
      const { data, info: opened } = await files.read(path, { signal });
      const { mode, uid, gid, modifiedAtMs, sizeBytes } = opened;
      yield {
        name: '',
        type: 'file',
        target: '',
        mode,
        uid,
        gid,
        modifiedAtMs,
        sizeBytes,
        content: exactly(data, sizeBytes),
      };
    },
  };
}

/** A file that grows meanwhile is taken as long as it was. */
async function* exactly(
  data: AsyncIterable<Uint8Array>,
  bytes: number,
): AsyncGenerator<Uint8Array, void, undefined> {
  let left = bytes;
  for await (const part of data) {
    if (left > 0) yield part.subarray(0, left);
    left -= part.length;
    if (left <= 0) break;
  }
  if (left > 0) throw new CayError('conflict', 'A file became shorter while it was copied');
}

/** The entries of a tar stream that a client sent. */
async function* archived(
  stream: AsyncIterable<Uint8Array>,
  shown: string,
): AsyncGenerator<SourceEntry, void, undefined> {
  const reader = byteReader(stream);
  try {
    for await (const entry of readTar(reader, { maxExtendedBytes: 1024 * 1024 })) {
      const { type } = entry;
      if (type === 'other') continue;
      yield {
        ...entry,
        type,
        name: plainName(entry.name),
      };
    }
  } catch (error) {
    if (isCayError(error)) throw error;
    throw new CayError('invalid_argument', `Cannot unpack "${shown.slice(0, 200)}": ${systemReason(error)}`, {
      cause: error,
    });
  } finally {
    await reader.close();
  }
}

type Packing = 'tar' | 'gzip' | 'zstd' | 'xz' | 'bzip2';

/** Whether a file is an archive that ADD unpacks, by its first bytes. */
export async function packingOf(entry: ContextEntry): Promise<Packing | undefined> {
  const parts: Uint8Array[] = [];
  let bytes = 0;
  for await (const part of entry.content()) {
    parts.push(part);
    if ((bytes += part.length) >= 512) break;
  }
  const head = Buffer.concat(parts);
  const starts = (hex: string) => head.subarray(0, hex.length / 2).toString('hex') === hex;
  if (starts('1f8b08')) return 'gzip';
  if (starts('28b52ffd')) return 'zstd';
  if (starts('fd377a585a00')) return 'xz';
  if (starts('425a68')) return 'bzip2';
  return head.length >= 265 && head.subarray(257, 262).toString('latin1') === 'ustar' ? 'tar' : undefined;
}

/** An archive of the context as the tree that is in it. */
export function archiveSource(entry: ContextEntry, packing: Packing, shown: string): Source {
  if (packing === 'xz' || packing === 'bzip2')
    throw new CayError('unsupported', `ADD does not unpack ${packing} archives: "${shown.slice(0, 200)}"`, {
      hint: 'COPY it and unpack it with RUN tar, or pack it with gzip or zstd',
    });
  return {
    shown,
    name: posix.basename(entry.path),
    isDirectory: true,
    async *entries() {
      const raw = Readable.from(entry.content(), { objectMode: false });
      const through =
        packing === 'gzip' ? createGunzip() : packing === 'zstd' ? createZstdDecompress() : undefined;
      if (through) raw.on('error', (error) => through.destroy(error));
      for await (const each of archived(through ? raw.pipe(through) : raw, shown))
        if (each.name !== '') yield each;
    },
  };
}

/** Puts all sources at the target. */
export async function placeSources(sources: readonly Source[], placing: Placing): Promise<void> {
  const { guest, target, owner, signal } = placing;
  const files = guest.files('root');
  const path = posix.resolve('/', target);
  const there = await statOf(files, path, signal);
  const intoDirectory =
    target.endsWith('/') ||
    sources.length > 1 ||
    there?.type === 'directory' ||
    sources.some(({ isDirectory }) => isDirectory);
  if (intoDirectory && there && there.type !== 'directory')
    throw new CayError('failed_precondition', `"${path}" is not a directory`);
  const directory = intoDirectory ? path : posix.dirname(path);
  // As Docker has it: above a directory that is copied, missing ones belong to root.
  if (sources.every(({ isDirectory }) => isDirectory))
    await makeDirectories(files, posix.dirname(path), undefined, signal);
  await makeDirectories(files, directory, owner, signal);
  for (const source of sources) {
    const into = source.isDirectory || intoDirectory ? path : posix.dirname(path);
    const name = source.isDirectory ? '' : intoDirectory ? source.name : posix.basename(path);
    await files.untar(into, packed(source, name, placing), { signal });
  }
}

async function statOf(files: Files, path: string, signal: AbortSignal): Promise<FileInfo | undefined> {
  return files.stat(path, { follow: true, signal }).catch((error: unknown) => {
    if (isCayError(error, 'not_found')) return undefined;
    throw error;
  });
}

/** Directories that are missing above the target belong to whom the files will. */
export async function makeDirectories(
  files: Files,
  path: string,
  owner: { uid: number; gid: number } | undefined,
  signal: AbortSignal,
): Promise<void> {
  const missing: string[] = [];
  for (let at = path; at !== '/' && !(await statOf(files, at, signal)); at = posix.dirname(at))
    missing.unshift(at);
  for (const each of missing) {
    await files.mkdir(each, { mode: 0o755, signal });
    if (owner) await files.chown(each, `${owner.uid}:${owner.gid}`, { signal });
  }
}

async function* packed(
  source: Source,
  name: string,
  { owner, mode }: Placing,
): AsyncGenerator<Uint8Array, void, undefined> {
  let left = MOST_BYTES;
  for await (const { content, ...entry } of source.entries()) {
    const { type, sizeBytes } = entry;
    if ((left -= sizeBytes) < 0)
      throw new CayError('resource_exhausted', `More than ${MOST_BYTES} bytes are copied`);
    yield encodeHeader({
      ...entry,
      name: name || entry.name,
      ...(owner && owner),
      // A file that is given away loses the rights of its owner.
      ...(owner && type === 'file' && { mode: entry.mode & 0o1777 }),
      ...(mode !== undefined && type !== 'symlink' && { mode }),
    });
    if (type !== 'file') continue;
    yield* content;
    const rest = paddingOf(sizeBytes);
    if (rest > 0) yield new Uint8Array(rest);
  }
  yield tarEnd();
}
