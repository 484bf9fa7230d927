/** An archive of images on disk, of which single files are read by their names. */
import { createReadStream } from 'node:fs';
import { open, type FileHandle } from 'node:fs/promises';
import { posix } from 'node:path';
import { CayError } from '@cay/sdk/protocol';
import { systemReason } from '@cay/sdk/system-error';
import {
  BLOCK,
  decodeHeader,
  decodeRecords,
  paddingOf,
  textAt,
  type Extended,
} from '../../lib/tar/header.ts';

export interface ArchiveFile {
  has(name: string): boolean;
  /** Rejects `invalid_argument` if it is missing. */
  read(name: string): AsyncIterable<Uint8Array>;
  size(name: string): number;
  /** Of a small file. */
  bytes(name: string, most: number): Promise<Buffer>;
}

interface Place {
  offset: number;
  sizeBytes: number;
}

const MOST_FILES = 100_000;
const MOST_RECORDS = 1024 * 1024;

/** Reads the headers. `onlyRoots` stops at the first name that no archive of images has. */
export async function openArchiveFile(path: string): Promise<ArchiveFile> {
  const handle = await open(path, 'r');
  try {
    return archiveOf(path, await scan(handle));
  } catch (error) {
    if (error instanceof CayError) throw error;
    throw new CayError('invalid_argument', `Cannot read the archive: ${systemReason(error)}`, {
      cause: error,
    });
  } finally {
    await handle.close();
  }
}

function archiveOf(path: string, places: Map<string, Place | string>): ArchiveFile {
  function find(name: string): Place | undefined {
    let at: Place | string | undefined = places.get(clean(name));
    // Old archives name a layer that several images have by links.
    for (let links = 0; typeof at === 'string' && links < 8; links++) at = places.get(at);
    return typeof at === 'string' ? undefined : at;
  }
  function require(name: string): Place {
    const place = find(name);
    if (!place) throw new CayError('invalid_argument', `The archive has no "${name.slice(0, 200)}"`);
    return place;
  }
  function read(name: string): AsyncIterable<Uint8Array> {
    const { offset, sizeBytes } = require(name);
    if (sizeBytes === 0) return (async function* () {})();
    return createReadStream(path, { start: offset, end: offset + sizeBytes - 1, highWaterMark: 1 << 20 });
  }
  return {
    has: (name) => find(name) !== undefined,
    size: (name) => require(name).sizeBytes,
    read,
    async bytes(name, most) {
      if (require(name).sizeBytes > most)
        throw new CayError('invalid_argument', `"${name.slice(0, 200)}" is larger than ${most} bytes`);
      const parts: Uint8Array[] = [];
      for await (const part of read(name)) parts.push(part);
      return Buffer.concat(parts);
    },
  };
}

async function scan(handle: FileHandle): Promise<Map<string, Place | string>> {
  const places = new Map<string, Place | string>();
  const { size } = await handle.stat();
  let extended: Extended = {};
  for (let offset = 0; offset + BLOCK <= size;) {
    const head = await readAt(handle, offset, BLOCK);
    if (head.every((byte) => byte === 0)) break;
    const { letter, ...entry } = decodeHeader(head, extended);
    offset += BLOCK;
    const sizeBytes = '123456'.includes(letter) ? 0 : entry.sizeBytes;
    if (offset + sizeBytes > size) throw new Error('it is truncated');
    if ('xgLK'.includes(letter)) {
      if (sizeBytes > MOST_RECORDS) throw new Error('an extended header is too long');
      const body = await readAt(handle, offset, sizeBytes);
      if (letter === 'x') extended = { ...extended, ...decodeRecords(body) };
      if (letter === 'L') extended = { ...extended, path: textAt(body, 0, body.length) };
      if (letter === 'K') extended = { ...extended, linkpath: textAt(body, 0, body.length) };
    } else {
      extended = {};
      const name = clean(entry.name);
      if (entry.type === 'file') places.set(name, { offset, sizeBytes });
      if (entry.type === 'hardlink') places.set(name, clean(entry.target));
      if (entry.type === 'symlink') places.set(name, clean(posix.join(posix.dirname(name), entry.target)));
      // A root filesystem has many; an archive of images has few.
      if (places.size >= MOST_FILES) break;
    }
    offset += sizeBytes + paddingOf(sizeBytes);
  }
  return places;
}

const clean = (name: string) => posix.normalize(name).replace(/^(\.?\/)+/, '');

async function readAt(handle: FileHandle, offset: number, length: number): Promise<Buffer> {
  const { buffer, bytesRead } = await handle.read(Buffer.alloc(length), 0, length, offset);
  if (bytesRead < length) throw new Error('it is truncated');
  return buffer;
}
