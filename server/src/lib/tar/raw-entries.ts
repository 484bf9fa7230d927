/**
 * Reading and passing on tar archives entry by entry, byte for byte. Names are latin1 strings, one character
 * a byte, because names of files need not be UTF-8. Input is untrusted; nothing is held beyond the bound.
 */
import type { ByteReader } from '../byte-reader.ts';
import { entryContent, take } from './entry-content.ts';
import { BLOCK, paddingOf } from './header.ts';
import { plainName } from './plain-name.ts';

export interface RawEntry {
  /** Without slashes at either end and without `./` before it; empty for the root. */
  name: string;
  /** As in the header: `0` file, `1` hard link, `2` symlink, `3` and `4` devices, `5` directory, `6` pipe. */
  letter: string;
  /** Of a link, as it was written. */
  target: string;
  sizeBytes: number;
  mode: number;
  uid: number;
  gid: number;
  modifiedAtMs: number;
  /** The extended headers and the header as they came. */
  head: Buffer;
  /** Pax records; values as latin1. */
  records: ReadonlyMap<string, string>;
  /** Can be read until the next entry is asked for. */
  content: AsyncIterable<Uint8Array>;
}

const WITH_CONTENT = new Set(['0', '\0', '7']);

/** Throws a plain `Error` that says what is wrong. */
export async function* rawEntries(
  reader: ByteReader,
  { maxExtendedBytes = 1024 * 1024 }: { maxExtendedBytes?: number } = {},
): AsyncGenerator<RawEntry, void, undefined> {
  let head: Buffer[] = [];
  let records = new Map<string, string>();
  for (;;) {
    const block = await reader.exactly(BLOCK);
    if (block.every((byte) => byte === 0)) return;
    requireChecksum(block);
    const letter = String.fromCharCode(block[156]!);
    const declared = numberAt(block, 124, 12);
    if ('xgLK'.includes(letter)) {
      if (declared > maxExtendedBytes) throw new Error('an extended header is too long');
      const body = await take(reader, declared);
      const padding = await take(reader, paddingOf(declared));
      if (letter === 'x') for (const [key, value] of recordsIn(body)) records.set(key, value);
      if (letter === 'L') records.set('path', untilZero(body));
      if (letter === 'K') records.set('linkpath', untilZero(body));
      // Global records say nothing about one file.
      if (letter !== 'g') head.push(block, body, padding);
      continue;
    }
    head.push(block);
    const sizeBytes = WITH_CONTENT.has(letter) ? (decimal(records.get('size')) ?? declared) : 0;
    const { content, skip } = entryContent(reader, sizeBytes);
    yield {
      name: plainName(records.get('path') ?? shortName(block)),
      letter: letter === '\0' ? '0' : letter,
      target: records.get('linkpath') ?? untilZero(block.subarray(157, 257)),
      sizeBytes,
      mode: numberAt(block, 100, 8) & 0o7777,
      uid: decimal(records.get('uid')) ?? numberAt(block, 108, 8),
      gid: decimal(records.get('gid')) ?? numberAt(block, 116, 8),
      modifiedAtMs: Number(records.get('mtime') ?? numberAt(block, 136, 12)) * 1000,
      head: Buffer.concat(head),
      records,
      content,
    };
    await skip();
    head = [];
    records = new Map();
  }
}

/** The headers of an entry under another name, and with another target if it is a link. */
export function renamedHead(entry: RawEntry, name: string, target = entry.target): Buffer {
  const records = new Map(entry.records);
  records.set('path', entry.letter === '5' ? `${name}/` : name);
  if (entry.letter === '1' || entry.letter === '2') records.set('linkpath', target);
  const body = Buffer.concat([...records].map(([key, value]) => recordOf(key, value)));
  const main = Buffer.from(entry.head.subarray(-BLOCK));
  // What the records say goes; the old fields only must not be longer than they are.
  main.fill(0, 0, 100).write(name.slice(-99), 0, 'latin1');
  main.fill(0, 157, 257).write(target.slice(-99), 157, 'latin1');
  main.fill(0, 345, 500);
  const pax = Buffer.alloc(BLOCK);
  pax.write('pax', 0);
  for (const [at, length, value] of [
    [100, 7, 0o644],
    [108, 7, 0],
    [116, 7, 0],
    [124, 11, body.length],
    [136, 11, 0],
  ] as const)
    pax.write(value.toString(8).padStart(length, '0'), at);
  pax.write('x', 156);
  pax.write('ustar\u000000', 257);
  return Buffer.concat([withChecksum(pax), body, Buffer.alloc(paddingOf(body.length)), withChecksum(main)]);
}

/** The zeros after the content of an entry. */
export const contentPadding = ({ sizeBytes }: RawEntry): Buffer => Buffer.alloc(paddingOf(sizeBytes));

function recordOf(key: string, value: string): Buffer {
  const rest = key.length + value.length + 3;
  let length = rest + String(rest).length;
  if (String(length).length + rest > length) length++;
  return Buffer.from(`${length} ${key}=${value}\n`, 'latin1');
}

function recordsIn(body: Buffer): [string, string][] {
  const found: [string, string][] = [];
  for (let at = 0; at < body.length;) {
    const space = body.indexOf(0x20, at);
    const equals = body.indexOf(0x3d, space);
    const length = space < 0 ? Number.NaN : Number(body.toString('latin1', at, space));
    const end = at + length;
    if (!Number.isSafeInteger(length) || length <= 0 || equals < 0 || end > body.length || equals >= end)
      throw new Error('a pax record is broken');
    found.push([body.toString('latin1', space + 1, equals), body.toString('latin1', equals + 1, end - 1)]);
    at = end;
  }
  return found;
}

function sumOf(block: Buffer): number {
  let sum = 0;
  for (let at = 0; at < BLOCK; at++) sum += at >= 148 && at < 156 ? 32 : block[at]!;
  return sum;
}

function requireChecksum(block: Buffer): void {
  if (sumOf(block) !== numberAt(block, 148, 8)) throw new Error('a header is broken');
}

function withChecksum(block: Buffer): Buffer {
  block.write(`${sumOf(block).toString(8).padStart(6, '0')}\0 `, 148, 'latin1');
  return block;
}

function shortName(block: Buffer): string {
  const isUstar = block.toString('latin1', 257, 262) === 'ustar' && block[262] === 0;
  const prefix = isUstar ? untilZero(block.subarray(345, 500)) : '';
  const short = untilZero(block.subarray(0, 100));
  return prefix ? `${prefix}/${short}` : short;
}

/** Octal digits, or a number in base 256 behind a set bit. */
function numberAt(block: Buffer, at: number, length: number): number {
  if (block[at]! & 0x80) {
    let value = block[at]! & 0x7f;
    for (let index = at + 1; index < at + length; index++) value = value * 256 + block[index]!;
    if (!Number.isSafeInteger(value)) throw new Error('a number is too large');
    return value;
  }
  const digits = untilZero(block.subarray(at, at + length)).trim();
  if (!/^[0-7]*$/.test(digits)) throw new Error('a number is broken');
  return digits === '' ? 0 : Number.parseInt(digits, 8);
}

function decimal(text: string | undefined): number | undefined {
  if (text === undefined) return undefined;
  const value = /^[0-9]{1,16}$/.test(text) ? Number(text) : Number.NaN;
  if (!Number.isSafeInteger(value)) throw new Error('a number is broken');
  return value;
}

function untilZero(bytes: Buffer): string {
  const end = bytes.indexOf(0);
  return bytes.toString('latin1', 0, end < 0 ? bytes.length : end);
}
