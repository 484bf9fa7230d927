/**
 * Unpacks an archive that a sandbox made, on this machine. Nothing in it is trusted.
 *
 * No entry is placed through a symlink, whoever made it: every directory on the way is looked at
 * and must be a real one. A name that is absolute or climbs ends the whole thing. Links that lead
 * outside, devices and the like are left out and told. Files belong to whoever runs this and have
 * neither setuid nor setgid.
 */
import { constants, type Stats } from 'node:fs';
import { randomUUID } from 'node:crypto';
import { chmod, link, lstat, mkdir, open, rename, rm, symlink, unlink, utimes } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { CayError } from '@cay/sdk/client';
import { byteReader, type ByteReader } from '../../../lib/byte-reader.ts';
import {
  BLOCK,
  decodeHeader,
  decodeRecords,
  paddingOf,
  textAt,
  type Entry,
  type Extended,
} from '../../../lib/tar/header.ts';

/** What a sandbox made never runs with another's rights here. */
const PERMISSIONS = 0o777;

export interface Unpacked {
  entries: number;
  bytes: number;
  /** Names of what was left out, and why. */
  leftOut: { name: string; why: string }[];
}

const MAX_EXTENSION = 1024 * 1024;
const MAX_LEFT_OUT = 1000;
/** Entries without content cost the sender little, and a file each here. */
const MAX_ENTRIES = 10_000_000;

/** Precondition: `dir` exists. */
export async function unpack(
  dir: string,
  data: AsyncIterable<Uint8Array>,
  onProgress: (bytes: number) => void = () => {},
): Promise<Unpacked> {
  const reader = byteReader(data);
  const result: Unpacked = { entries: 0, bytes: 0, leftOut: [] };
  const directories: { path: string; entry: Entry }[] = [];
  let extended: Extended = {};
  try {
    for (;;) {
      const head = await reader.exactly(BLOCK);
      // Zeros mark the end; so does the end itself, which some writers leave it at.
      if (head.every((byte) => byte === 0)) break;
      const entry = decodeHeader(head, extended);
      if ('xgLK'.includes(entry.letter)) {
        extended = { ...extended, ...(await readExtension(reader, entry.letter, entry.sizeBytes)) };
        continue;
      }
      extended = {};
      const parts = partsOf(entry.name);
      const why = await place(dir, parts, entry, reader, directories);
      if (why !== undefined && result.leftOut.length < MAX_LEFT_OUT)
        result.leftOut.push({ name: entry.name, why });
      result.entries += 1;
      if (result.entries > MAX_ENTRIES) throw new Error(`it has more than ${MAX_ENTRIES} entries`);
      if (entry.type === 'file') onProgress((result.bytes += entry.sizeBytes));
    }
    // Last, and the deepest first: a directory that cannot be written can still be filled before.
    for (const { path, entry } of directories.reverse()) {
      await chmod(path, entry.mode & PERMISSIONS);
      await utimes(path, entry.modifiedAtMs / 1000, entry.modifiedAtMs / 1000);
    }
    return result;
  } catch (error) {
    if (error instanceof CayError) throw error;
    throw new CayError('failed_precondition', `Cannot unpack into "${dir}": ${(error as Error).message}`, {
      cause: error,
    });
  } finally {
    await reader.close();
  }
}

async function readExtension(reader: ByteReader, letter: string, size: number): Promise<Extended> {
  if (size > MAX_EXTENSION) throw new Error('an extended header is too long');
  const body = await reader.exactly(size);
  await reader.exactly(paddingOf(size));
  if (letter === 'x') return decodeRecords(body);
  if (letter === 'L') return { path: textAt(body, 0, body.length) };
  return letter === 'K' ? { linkpath: textAt(body, 0, body.length) } : {};
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

/** Makes the entry; the reason if it was left out. Takes the entry's content in any case. */
async function place(
  dir: string,
  parts: string[],
  entry: Entry,
  reader: ByteReader,
  directories: { path: string; entry: Entry }[],
): Promise<string | undefined> {
  const path = join(dir, ...parts);
  if (parts.length === 0) {
    if (entry.type === 'directory') return undefined;
    await skip(reader, entry);
    return 'it has no name';
  }
  await makeParents(dir, parts.slice(0, -1));
  const there = await statOf(path);
  if (entry.type === 'directory') {
    if (there && !there.isDirectory()) throw new Error(`"${entry.name}" is there and not a directory`);
    // Until it is filled it has to be writable.
    if (!there) await mkdir(path, { mode: 0o700 });
    directories.push({ path, entry });
    return undefined;
  }
  if (there?.isDirectory()) throw new Error(`"${entry.name}" is there and a directory`);
  if (entry.type === 'file') {
    await writeContent(path, entry, reader);
    return undefined;
  }
  if (entry.type === 'symlink') {
    if (!staysInside(parts, entry.target)) return `it leads to "${entry.target}", outside`;
    if (there) await unlink(path);
    await symlink(entry.target, path);
    return undefined;
  }
  if (entry.type === 'hardlink') {
    const target = partsOf(entry.target);
    await requireDirectories(dir, target.slice(0, -1));
    const from = join(dir, ...target);
    if (!(await statOf(from))?.isFile()) return `"${entry.target}", which it is a link to, is no file`;
    if (there) await unlink(path);
    await link(from, path);
    return undefined;
  }
  await skip(reader, entry);
  return 'it is a device or something else that is not copied';
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

/** The file gets its name when it is whole: one that is cut off leaves what was there. */
async function writeContent(path: string, entry: Entry, reader: ByteReader): Promise<void> {
  const temporary = join(dirname(path), `.cay-${randomUUID()}`);
  try {
    await writeNew(temporary, entry, reader);
    await rename(temporary, path);
  } catch (error) {
    await rm(temporary, { force: true });
    throw error;
  }
}

async function writeNew(path: string, entry: Entry, reader: ByteReader): Promise<void> {
  // With O_EXCL a link that appears meanwhile is not followed.
  const file = await open(
    path,
    constants.O_WRONLY | constants.O_CREAT | constants.O_EXCL | constants.O_NOFOLLOW,
    0o600,
  );
  try {
    for (let left = entry.sizeBytes; left > 0;) {
      const part = await reader.some(left);
      if (part.length === 0) throw new Error('it is cut off');
      await file.writeFile(part);
      left -= part.length;
    }
    const padding = paddingOf(entry.sizeBytes);
    if ((await reader.exactly(padding)).length < padding) throw new Error('it is cut off');
    await file.chmod(entry.mode & PERMISSIONS);
    await file.utimes(entry.modifiedAtMs / 1000, entry.modifiedAtMs / 1000);
  } finally {
    await file.close();
  }
}

async function skip(reader: ByteReader, entry: Entry): Promise<void> {
  for (let left = entry.sizeBytes + paddingOf(entry.sizeBytes); left > 0;) {
    const part = await reader.some(left);
    if (part.length === 0) throw new Error('it is cut off');
    left -= part.length;
  }
}

async function makeParents(dir: string, parts: string[]): Promise<void> {
  let path = dir;
  for (const part of parts) {
    path = join(path, part);
    const there = await statOf(path);
    if (!there) await mkdir(path);
    else requireDirectory(path, there);
  }
}

async function requireDirectories(dir: string, parts: string[]): Promise<void> {
  let path = dir;
  for (const part of parts) {
    path = join(path, part);
    requireDirectory(path, await statOf(path));
  }
}

function requireDirectory(path: string, there: Stats | undefined): void {
  if (there?.isDirectory()) return;
  throw new CayError(
    'permission_denied',
    `Refused to unpack through "${path}": it is ${there?.isSymbolicLink() ? 'a symlink' : 'no directory'}`,
    {
      hint: `remove it, or copy to another place than "${dirname(path)}"`,
    },
  );
}

async function statOf(path: string): Promise<Stats | undefined> {
  return lstat(path).catch((error: NodeJS.ErrnoException) => {
    if (error.code === 'ENOENT') return undefined;
    throw error;
  });
}
