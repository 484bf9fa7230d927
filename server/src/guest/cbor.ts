/**
 * The part of CBOR (RFC 8949) that the guest protocol allows, and nothing else.
 *
 * Decoding is bounded by its input: a count is checked against the bytes that are left before
 * anything is reserved. Integers that a JavaScript number cannot hold exactly are refused. Of a
 * key that comes twice the first counts, as on the guest's side.
 */
import { Buffer, isUtf8 } from 'node:buffer';
import { CayError } from '@cay/sdk/protocol';
import { violation } from './violation.ts';

export type CborValue = null | boolean | number | string | Uint8Array | CborValue[] | CborMap;
/** Decoded maps have no prototype, so that a key such as `__proto__` is only a key. */
export interface CborMap {
  [key: string]: CborValue | undefined;
}

const MAX_DEPTH = 8;
/** Values in one message: without a bound a megabyte of empty maps would take a hundred megabytes. */
const MAX_VALUES = 131_072;
/** From this length on V8's own decoder is faster than adding up characters. */
const SHORT_TEXT = 24;

let scratch = Buffer.allocUnsafeSlow(16 * 1024);
let end = 0;
let most = Infinity;

/**
 * Keys with the value `undefined` are left out. Throws `invalid_argument` beyond so many bytes, before all of
 * it is encoded.
 */
export function encodeCbor(value: CborValue, maxBytes = Infinity): Buffer {
  end = 0;
  most = maxBytes;
  encode(value, 0);
  if (end > most) throw tooLarge();
  const encoded = Buffer.allocUnsafe(end);
  scratch.copy(encoded, 0, 0, end);
  // Do not keep a buffer that one rare, large message needed.
  if (scratch.length > 1024 * 1024) scratch = Buffer.allocUnsafeSlow(16 * 1024);
  return encoded;
}

function tooLarge(): CayError {
  return new CayError('invalid_argument', `The request is too large: the most is ${most} bytes`);
}

function reserve(bytes: number): void {
  if (end + bytes <= scratch.length) return;
  const larger = Buffer.allocUnsafeSlow(Math.max(scratch.length * 2, end + bytes));
  scratch.copy(larger, 0, 0, end);
  scratch = larger;
}

function encodeHead(major: number, n: number): void {
  reserve(9);
  const first = major << 5;
  if (n < 24) {
    scratch[end++] = first | n;
  } else if (n < 0x100) {
    scratch[end++] = first | 24;
    scratch[end++] = n;
  } else if (n < 0x1_0000) {
    scratch[end++] = first | 25;
    end = scratch.writeUInt16BE(n, end);
  } else if (n < 0x1_0000_0000) {
    scratch[end++] = first | 26;
    end = scratch.writeUInt32BE(n, end);
  } else {
    scratch[end++] = first | 27;
    end = scratch.writeUInt32BE(Math.floor(n / 0x1_0000_0000), end);
    end = scratch.writeUInt32BE(n % 0x1_0000_0000, end);
  }
}

function encodeText(text: string): void {
  const length = Buffer.byteLength(text);
  if (end + length > most) throw tooLarge();
  encodeHead(3, length);
  reserve(length);
  end += scratch.write(text, end);
}

function encode(value: CborValue, depth: number): void {
  if (depth > MAX_DEPTH)
    throw new CayError('internal', `Cannot encode a value that is nested deeper than ${MAX_DEPTH}`);
  if (typeof value === 'string') return encodeText(value);
  if (typeof value === 'number') {
    if (!Number.isSafeInteger(value))
      throw new CayError('invalid_argument', `Cannot encode "${value}": not an exact integer`);
    return value < 0 ? encodeHead(1, -1 - value) : encodeHead(0, value);
  }
  if (value === null || typeof value === 'boolean') {
    reserve(1);
    scratch[end++] = value === null ? 0xf6 : value ? 0xf5 : 0xf4;
    return;
  }
  if (value instanceof Uint8Array) {
    encodeHead(2, value.length);
    reserve(value.length);
    scratch.set(value, end);
    end += value.length;
    return;
  }
  if (Array.isArray(value)) {
    encodeHead(4, value.length);
    for (const item of value) encode(item, depth + 1);
    return;
  }
  const keys = Object.keys(value).filter((key) => value[key] !== undefined);
  encodeHead(5, keys.length);
  for (const key of keys) {
    encodeText(key);
    encode(value[key] as CborValue, depth + 1);
  }
}

/**
 * Decodes exactly one value that fills all of `bytes`; throws a `violation` otherwise. Byte strings are views
 * of `bytes`.
 */
export function decodeCbor(bytes: Uint8Array): CborValue {
  const reader = new Reader(bytes);
  const value = reader.value(0);
  if (reader.left > 0) throw violation('there are bytes after a value');
  return value;
}

export function decodeCborMap(bytes: Uint8Array): CborMap {
  const value = decodeCbor(bytes);
  if (value === null || typeof value !== 'object' || Array.isArray(value) || value instanceof Uint8Array) {
    throw violation('a payload is not a map');
  }
  return value;
}

class Reader {
  readonly #bytes: Buffer;
  #at = 0;
  #values = 0;

  constructor(bytes: Uint8Array) {
    this.#bytes = Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  }

  get left(): number {
    return this.#bytes.length - this.#at;
  }

  value(depth: number): CborValue {
    if (depth > MAX_DEPTH) throw violation('a value is nested too deeply');
    if (++this.#values > MAX_VALUES) throw violation(`a message has more than ${MAX_VALUES} values`);
    const first = this.#byte();
    const major = first >> 5;
    if (major === 7) {
      if (first === 0xf4) return false;
      if (first === 0xf5) return true;
      if (first === 0xf6) return null;
      throw violation('a value is a float or an unknown simple value');
    }
    const n = this.#argument(first & 0x1f);
    switch (major) {
      case 0:
        return n;
      case 1:
        if (n === Number.MAX_SAFE_INTEGER) throw violation('an integer is too large');
        return -1 - n;
      case 2:
        return this.#take(n);
      case 3:
        return this.#text(n);
      case 4:
        return this.#array(n, depth);
      case 5:
        return this.#map(n, depth);
      default:
        throw violation('a value has a tag');
    }
  }

  #array(length: number, depth: number): CborValue[] {
    if (length > this.left) throw violation('an array is longer than its payload');
    const items: CborValue[] = [];
    for (let i = 0; i < length; i++) items.push(this.value(depth + 1));
    return items;
  }

  #map(length: number, depth: number): CborMap {
    if (length * 2 > this.left) throw violation('a map is longer than its payload');
    const map = Object.create(null) as CborMap;
    for (let i = 0; i < length; i++) {
      const first = this.#byte();
      if (first >> 5 !== 3) throw violation('a key is not text');
      const key = this.#text(this.#argument(first & 0x1f));
      const value = this.value(depth + 1);
      if (!(key in map)) map[key] = value;
    }
    return map;
  }

  #byte(): number {
    if (this.#at >= this.#bytes.length) throw violation('a value ends too early');
    return this.#bytes[this.#at++] as number;
  }

  #take(length: number): Buffer {
    if (length > this.left) throw violation('a value ends too early');
    this.#at += length;
    return this.#bytes.subarray(this.#at - length, this.#at);
  }

  #argument(short: number): number {
    if (short < 24) return short;
    if (short === 24) return this.#byte();
    if (short > 27) throw violation('a length is indefinite or reserved');
    const width = short === 25 ? 2 : short === 26 ? 4 : 8;
    if (width > this.left) throw violation('a value ends too early');
    const at = this.#at;
    this.#at += width;
    if (width === 2) return this.#bytes.readUInt16BE(at);
    if (width === 4) return this.#bytes.readUInt32BE(at);
    const high = this.#bytes.readUInt32BE(at);
    if (high > 0x1f_ffff) throw violation('an integer is too large');
    return high * 0x1_0000_0000 + this.#bytes.readUInt32BE(at + 4);
  }

  #text(length: number): string {
    if (length > this.left) throw violation('a value ends too early');
    const bytes = this.#bytes;
    const from = this.#at;
    const to = (this.#at += length);
    if (length <= SHORT_TEXT) {
      let text = '';
      let at = from;
      for (; at < to && (bytes[at] as number) < 0x80; at++) text += String.fromCharCode(bytes[at] as number);
      if (at === to) return text;
    }
    if (!isUtf8(bytes.subarray(from, to))) throw violation('a text is not UTF-8');
    return bytes.toString('utf8', from, to);
  }
}
