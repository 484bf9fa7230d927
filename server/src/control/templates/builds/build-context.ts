/**
 * The files that a client brought for a build, as a tar archive on disk with an index of its entries. The
 * archive is hostile: its names lead nowhere but into the index, and symlinks are followed among its own
 * entries.
 */
import { createHash } from 'node:crypto';
import { createReadStream } from 'node:fs';
import { posix } from 'node:path';
import { CayError } from '@cay/sdk/protocol';
import { systemReason } from '@cay/sdk/system-error';
import { byteReader } from '../../../lib/byte-reader.ts';
import { ignoreFile } from '../../../lib/globs/ignore-file.ts';
import { trimEnd } from '../../../lib/trim-end.ts';
import { nextSlice } from '../../../lib/slices.ts';
import { readTar } from '../../../lib/tar/read.ts';

export interface ContextEntry {
  /** Relative, without `.` and `..`. The root is the empty text. */
  path: string;
  type: 'file' | 'directory' | 'symlink';
  mode: number;
  modifiedAtMs: number;
  sizeBytes: number;
  /** Of a symlink. */
  target: string;
  /** SHA-256 of a file's content. */
  digest: string;
  content(): AsyncIterable<Uint8Array>;
}

export interface BuildContext {
  /** To be awaited in long loops: lets others have the event loop, and rejects when the build has ended. */
  pace(): Promise<void>;
  /** The entry at a path, after symlinks among its parents; with `follow` after its own as well. */
  find(path: string, options?: { follow?: boolean }): ContextEntry | undefined;
  /** An entry and all below it, parents first. */
  below(entry: ContextEntry): ContextEntry[];
  all(): Iterable<ContextEntry>;
}

const MOST_ENTRIES = 200_000;
const MOST_EXTENDED = 64 * 1024;
const MOST_LINKS = 40;
const IGNORE_FILE = '.dockerignore';
/** Each path is compared with all patterns at once. */
const MOST_IGNORE_BYTES = 32 * 1024;
const LONGEST_NAME = 4096;
const DEEPEST = 256;
/** Of all names, and of what links lead to. They are kept while the build goes on. */
const MOST_NAME_BYTES = 64 * 1024 * 1024;

export const NO_CONTEXT: BuildContext = {
  pace: async () => {},
  find: () => undefined,
  below: () => [],
  all: () => [],
};

/** Reads the archive once. The owner is whom the work on the event loop is counted for. */
export async function openContext(
  path: string,
  { owner, signal }: { owner: string; signal: AbortSignal },
): Promise<BuildContext> {
  const pace = pacer(owner, signal);
  const entries = new Map<string, ContextEntry>();
  const root = directory('');
  entries.set('', root);
  let offset = 0;
  let nameBytes = 0;
  const reader = byteReader(createReadStream(path, { highWaterMark: 256 * 1024 }));
  const counted = {
    ...reader,
    async some(length: number) {
      const part = await reader.some(length);
      offset += part.length;
      return part;
    },
    async exactly(length: number) {
      const part = await reader.exactly(length);
      offset += part.length;
      return part;
    },
  };
  try {
    for await (const entry of readTar(counted, { maxExtendedBytes: MOST_EXTENDED })) {
      await pace();
      const name = cleaned(entry.name);
      const type = entry.type === 'hardlink' ? 'file' : entry.type;
      if (type === 'other')
        throw new Error(`"${entry.name.slice(0, 200)}" is neither file, directory nor symlink`);
      const start = offset;
      const hash = createHash('sha256');
      for await (const part of entry.content) hash.update(part);
      if (entries.size >= MOST_ENTRIES) throw new Error(`it has more than ${MOST_ENTRIES} entries`);
      nameBytes += name.length + entry.target.length;
      if (nameBytes > MOST_NAME_BYTES || entry.target.length > LONGEST_NAME)
        throw new Error('its names, or what its links lead to, are too long');
      const shared = { path: name, mode: entry.mode, modifiedAtMs: entry.modifiedAtMs };
      if (entry.type === 'hardlink') {
        const to = entries.get(cleaned(entry.target));
        if (to?.type !== 'file') throw new Error(`"${name}" links to what is not there`);
        entries.set(name, { ...to, path: name });
      } else {
        const { sizeBytes, target } = entry;
        const end = start + sizeBytes - 1;
        entries.set(name, {
          ...shared,
          type,
          sizeBytes,
          target: type === 'symlink' ? target : '',
          digest: type === 'file' ? hash.digest('hex') : '',
          content: () =>
            sizeBytes === 0 ? empty() : createReadStream(path, { start, end, highWaterMark: 256 * 1024 }),
        });
      }
      for (
        let above = posix.dirname(name);
        above !== '.' && !entries.has(above);
        above = posix.dirname(above)
      )
        entries.set(above, directory(above));
    }
  } catch (error) {
    signal.throwIfAborted();
    throw new CayError('invalid_argument', `Cannot read the build context: ${systemReason(error)}`, {
      cause: error,
    });
  } finally {
    await reader.close();
  }
  await leaveOut(entries, pace);
  return indexed(entries, pace);
}

const SLICE_MS = 1;

function pacer(owner: string, signal: AbortSignal): BuildContext['pace'] {
  let since = performance.now();
  return async () => {
    if (performance.now() - since < SLICE_MS) return;
    signal.throwIfAborted();
    await nextSlice(owner);
    since = performance.now();
  };
}

async function* empty(): AsyncGenerator<Uint8Array, void, undefined> {}

function directory(path: string): ContextEntry {
  return {
    path,
    type: 'directory',
    mode: 0o755,
    modifiedAtMs: 0,
    sizeBytes: 0,
    target: '',
    digest: '',
    content: empty,
  };
}

function cleaned(name: string): string {
  if (name.includes('\0') || name.length > LONGEST_NAME) throw new Error('a name is not valid');
  const parts = name.split('/');
  if (parts.includes('..')) throw new Error(`"${name.slice(0, 200)}" leads out of it`);
  if (parts.length > DEEPEST) throw new Error(`"${name.slice(0, 200)}" is in too many directories`);
  return trimEnd(posix.normalize(`/${name}`), '/').slice(1);
}

/** A client may have sent what its own `.dockerignore` leaves out. */
async function leaveOut(entries: Map<string, ContextEntry>, pace: BuildContext['pace']): Promise<void> {
  const file = entries.get(IGNORE_FILE);
  if (file?.type !== 'file') return;
  if (file.sizeBytes > MOST_IGNORE_BYTES)
    throw new CayError('invalid_argument', `${IGNORE_FILE} is larger than ${MOST_IGNORE_BYTES} bytes`);
  const text = Buffer.concat(await Array.fromAsync(file.content())).toString('utf8');
  try {
    const { ignoresInTurns } = ignoreFile(text);
    for (const path of entries.keys()) {
      await pace();
      if (path !== '' && (await ignoresInTurns(path, pace))) entries.delete(path);
    }
    for (const path of entries.keys())
      for (
        let above = posix.dirname(path);
        above !== '.' && !entries.has(above);
        above = posix.dirname(above)
      )
        entries.set(above, directory(above));
  } catch (error) {
    throw new CayError('invalid_argument', `Cannot read ${IGNORE_FILE}: ${systemReason(error)}`, {
      cause: error,
    });
  }
}

function indexed(entries: Map<string, ContextEntry>, pace: BuildContext['pace']): BuildContext {
  const root = entries.get('')!;
  /** By entry, so that no path has to be put together. */
  const children = new Map<ContextEntry, Map<string, ContextEntry>>();
  for (const entry of [...entries.values()].sort((a, b) => (a.path < b.path ? -1 : 1))) {
    if (entry.path === '') continue;
    const slash = entry.path.lastIndexOf('/');
    const parent = slash < 0 ? root : entries.get(entry.path.slice(0, slash))!;
    let siblings = children.get(parent);
    if (!siblings) children.set(parent, (siblings = new Map()));
    siblings.set(entry.path.slice(slash + 1), entry);
  }

  function find(path: string, { follow = false } = {}): ContextEntry | undefined {
    let links = 0;
    const left = path.split('/').filter((part) => part !== '' && part !== '.');
    const at: ContextEntry[] = [];
    while (left.length > 0) {
      const part = left.shift()!;
      // The root is its own parent.
      if (part === '..') {
        at.pop();
        continue;
      }
      const entry = children.get(at.at(-1) ?? root)?.get(part);
      if (!entry) return undefined;
      if (entry.type === 'symlink' && (left.length > 0 || follow)) {
        if (++links > MOST_LINKS) return undefined;
        if (entry.target.startsWith('/')) at.length = 0;
        left.unshift(...entry.target.split('/').filter((each) => each !== '' && each !== '.'));
        if (left.length > DEEPEST) return undefined;
      } else if (entry.type !== 'directory' && left.length > 0) return undefined;
      else at.push(entry);
    }
    return at.at(-1) ?? root;
  }

  function below(entry: ContextEntry): ContextEntry[] {
    const found: ContextEntry[] = [];
    const walk = (each: ContextEntry) => {
      found.push(each);
      for (const child of children.get(each)?.values() ?? []) walk(child);
    };
    walk(entry);
    return found;
  }

  return { pace, find, below, all: () => entries.values() };
}
