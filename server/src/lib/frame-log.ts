/**
 * A log of bytes on disk, of bounded size: frames one after the other in segments, of which the oldest are
 * dropped.
 *
 * Every frame knows its own offset and has a checksum, so that a reader detects a frame that a crash has
 * cut short. Offsets only grow; where bytes are missing a frame of kind 0 says how many. A frame of
 * kind 255 has no bytes of the log, but the time at which those were written that follow it.
 *
 *     checksum u32 · kind u8 · 0 u24 · length u32 · offset u64 · data
 *
 * The segments of a log are `<name>.<offset of its first byte>.log` in one directory.
 */
import { open, readdir, rm, type FileHandle } from 'node:fs/promises';
import { join } from 'node:path';
import { crc32 } from 'node:zlib';

const HEADER = 20;
const GAP = 0;
const TIME = 255;
const LARGEST_FRAME = 16 * 1024 * 1024;

export interface Frame {
  kind: number;
  offset: number;
  /** Empty in a gap. */
  data: Uint8Array;
  /** How many bytes are missing from `offset` on; 0 unless it is a gap. */
  missing: number;
  /** When it was written; absent if nobody said so. */
  atMs?: number | undefined;
}

export interface FrameLogOptions {
  directory: string;
  /** Without a slash. */
  name: string;
  /** There is none of that name, which then need not be looked for. */
  fresh?: boolean;
  segmentBytes?: number;
  segments?: number;
}

export interface FrameLog {
  /** Where the next byte goes. */
  readonly end: number;
  /** Of the first byte that is kept. */
  readonly keptFrom: number;
  /** All of it or, when it rejects, nothing. */
  append(kind: number, data: Uint8Array, atMs?: number): Promise<void>;
  /** Continues after bytes that are lost. */
  skip(bytes: number, atMs?: number): Promise<void>;
  sync(): Promise<void>;
  close(): Promise<void>;
}

interface Segment {
  path: string;
  first: number;
}

const SEGMENT_BYTES = 4 * 1024 * 1024;
const SEGMENTS = 4;

/** Opens a log to go on writing where it ends. What a crash left unfinished there is cut off. */
export async function openFrameLog(options: FrameLogOptions): Promise<FrameLog> {
  const { directory, name, fresh = false, segmentBytes = SEGMENT_BYTES, segments: most = SEGMENTS } = options;
  const segments = fresh ? [] : await segmentsOf(directory, name);
  if (segments.length === 0) segments.push({ path: pathOf(directory, name, 0), first: 0 });
  let file = await open(segments.at(-1)!.path, 'a+', 0o600);
  let size = 0;
  let end = segments.at(-1)!.first;
  /** The time that the next frame has unless it says another. */
  let markedMs: number | undefined;
  for await (const { offset, data, missing, next } of framesOf(file, 0)) {
    end = offset + data.length + missing;
    size = next;
  }
  await file.truncate(size);

  async function rotate(): Promise<void> {
    const next = { path: pathOf(directory, name, end), first: end };
    const opened = await open(next.path, 'a', 0o600);
    await file.close();
    file = opened;
    size = 0;
    markedMs = undefined;
    segments.push(next);
    while (segments.length > most) await rm(segments.shift()!.path, { force: true });
  }

  async function write(kind: number, data: Uint8Array, atMs: number | undefined): Promise<void> {
    if (size >= segmentBytes) await rotate();
    const frame = encode(kind, end, data);
    const frames =
      atMs === undefined || atMs === markedMs ? frame : Buffer.concat([encode(TIME, end, u64(atMs)), frame]);
    try {
      for (let at = 0; at < frames.length;) at += (await file.write(frames, at)).bytesWritten;
    } catch (error) {
      await file.truncate(size);
      throw error;
    }
    markedMs = atMs ?? markedMs;
    size += frames.length;
  }

  return {
    get end() {
      return end;
    },
    get keptFrom() {
      return segments[0]!.first;
    },
    async append(kind, data, atMs) {
      await write(kind, data, atMs);
      end += data.length;
    },
    async skip(bytes, atMs) {
      await write(GAP, u64(bytes), atMs);
      end += bytes;
    },
    sync: () => file.datasync(),
    close: () => file.close(),
  };
}

/**
 * The frames from `offset` up to `end`, where all before `end` is known to be written. The first is cut to
 * begin at `offset`; what is not kept any more is a gap.
 */
export async function* readFrames(
  directory: string,
  name: string,
  offset: number,
  end: number,
): AsyncGenerator<Frame> {
  let at = offset;
  while (at < end) {
    const segments = await segmentsOf(directory, name);
    const index = Math.max(
      0,
      segments.findLastIndex(({ first }) => first <= at),
    );
    const segment = segments[index];
    const kept = segment?.first ?? end;
    if (kept > at) {
      yield { kind: GAP, offset: at, data: new Uint8Array(0), missing: Math.min(kept, end) - at };
      at = Math.min(kept, end);
      continue;
    }
    const before = at;
    const file = await open(segment!.path, 'r').catch(absent);
    // Dropped since it was listed.
    if (!file) continue;
    try {
      for await (const frame of framesOf(file, 0)) {
        const cut = within(frame, at, end);
        if (cut) {
          yield cut;
          at = cut.offset + cut.data.length + cut.missing;
        }
        if (at >= end) return;
      }
    } finally {
      await file.close();
    }
    if (at > before) continue;
    // A segment without what it should have: go on with the next one, or give up what is missing.
    const missing = Math.min(segments[index + 1]?.first ?? end, end) - at;
    yield { kind: GAP, offset: at, data: new Uint8Array(0), missing };
    at += missing;
  }
}

/**
 * The offset of the first frame that was written then or later, of those up to `end`; `end` if there is none.
 * One without a time is older than any.
 */
export async function offsetSince(
  directory: string,
  name: string,
  atMs: number,
  end: number,
): Promise<number> {
  for await (const frame of readFrames(directory, name, 0, end))
    if (frame.atMs !== undefined && frame.atMs >= atMs) return frame.offset;
  return end;
}

/** The first and last offset of a log that has no writer. */
export async function extentOf(directory: string, name: string): Promise<{ keptFrom: number; end: number }> {
  const segments = await segmentsOf(directory, name);
  let end = segments.at(-1)?.first ?? 0;
  const file = segments.length === 0 ? undefined : await open(segments.at(-1)!.path, 'r').catch(absent);
  if (file) {
    try {
      for await (const { offset, data, missing } of framesOf(file, 0)) end = offset + data.length + missing;
    } finally {
      await file.close();
    }
  }
  return { keptFrom: segments[0]?.first ?? 0, end };
}

export async function removeLog(directory: string, name: string): Promise<void> {
  for (const { path } of await segmentsOf(directory, name)) await rm(path, { force: true });
}

function within(frame: Frame, from: number, to: number): Frame | undefined {
  const length = frame.data.length + frame.missing;
  const start = Math.max(from, frame.offset);
  const stop = Math.min(to, frame.offset + length);
  if (stop <= start) return undefined;
  if (frame.missing > 0) return { ...frame, offset: start, missing: stop - start };
  return { ...frame, offset: start, data: frame.data.subarray(start - frame.offset, stop - frame.offset) };
}

function u64(value: number): Buffer {
  const data = Buffer.alloc(8);
  data.writeBigUInt64BE(BigInt(value));
  return data;
}

function encode(kind: number, offset: number, data: Uint8Array): Buffer {
  const frame = Buffer.allocUnsafe(HEADER + data.length);
  frame[4] = kind;
  frame.fill(0, 5, 8);
  frame.writeUInt32BE(data.length, 8);
  frame.writeBigUInt64BE(BigInt(offset), 12);
  frame.set(data, HEADER);
  frame.writeUInt32BE(crc32(frame.subarray(4)), 0);
  return frame;
}

/** Whole frames in order, up to the first that is not. */
async function* framesOf(file: FileHandle, from: number): AsyncGenerator<Frame & { next: number }> {
  let atMs: number | undefined;
  for (let at = from; ;) {
    const header = await readAt(file, at, HEADER);
    if (!header) return;
    const length = header.readUInt32BE(8);
    if (length > LARGEST_FRAME) return;
    const data = await readAt(file, at + HEADER, length);
    if (!data || crc32(data, crc32(header.subarray(4))) !== header.readUInt32BE(0)) return;
    at += HEADER + length;
    const kind = header[4]!;
    const offset = Number(header.readBigUInt64BE(12));
    if (kind === TIME) atMs = Number(data.readBigUInt64BE(0));
    else if (kind === GAP)
      yield {
        kind,
        offset,
        data: new Uint8Array(0),
        missing: Number(data.readBigUInt64BE(0)),
        atMs,
        next: at,
      };
    else yield { kind, offset, data, missing: 0, atMs, next: at };
  }
}

async function readAt(file: FileHandle, position: number, length: number): Promise<Buffer | undefined> {
  const buffer = Buffer.allocUnsafe(length);
  for (let at = 0; at < length;) {
    const { bytesRead } = await file.read(buffer, at, length - at, position + at);
    if (bytesRead === 0) return undefined;
    at += bytesRead;
  }
  return buffer;
}

const pathOf = (directory: string, name: string, first: number) => join(directory, `${name}.${first}.log`);

async function segmentsOf(directory: string, name: string): Promise<Segment[]> {
  const found: Segment[] = [];
  for (const entry of await readdir(directory).catch(() => [])) {
    if (!entry.startsWith(`${name}.`)) continue;
    const match = /^\.(\d{1,16})\.log$/.exec(entry.slice(name.length));
    if (match) found.push({ path: join(directory, entry), first: Number(match[1]) });
  }
  return found.sort((one, other) => one.first - other.first);
}

function absent(error: NodeJS.ErrnoException): undefined {
  if (error.code !== 'ENOENT') throw error;
}
