/**
 * Parses JSON in pieces, for texts of several megabytes from a client: `JSON.parse` would block the event
 * loop. Values and failures are the same.
 */
import type { Buffer } from 'node:buffer';

/** Bytes and values parsed at once. A string is parsed in one step. */
const PIECE_BYTES = 128 * 1024;
const PIECE_VALUES = 1000;
/** No meaningful number is longer, nor a `true`. */
const LONGEST_LITERAL = 4096;

const LONG_STRING = 1024;
// oxlint-disable-next-line no-control-regex
const CONTROL = /[\u0000-\u001f]/;

const QUOTE = 0x22;
const BACKSLASH = 0x5c;
const COMMA = 0x2c;
const COLON = 0x3a;
const ARRAY = 0x5b;
const ARRAY_END = 0x5d;
const OBJECT = 0x7b;
const OBJECT_END = 0x7d;

/** What may come next. The `first` states come right after a bracket, which may be closed at once. */
type Expected = 'value' | 'firstValue' | 'key' | 'firstKey' | 'colon' | 'next';

interface Frame {
  items?: unknown[];
  object?: Record<string, unknown>;
  key: string;
}

/** More values than allowed. */
export class TooManyValues extends Error {}

/**
 * Yields after each piece, and returns the value. Throws `SyntaxError` for what is not JSON, and
 * `TooManyValues`.
 */
export function* parsePieces(bytes: Buffer, mostValues = Infinity): Generator<undefined, unknown> {
  const stack: Frame[] = [];
  let expected: Expected = 'value';
  let root: unknown;
  let at = 0;
  let values = 0;
  let pieceBytes = PIECE_BYTES;
  let pieceValues = PIECE_VALUES;

  /** Puts a value where it belongs; the brackets of what is put stay open until they are closed. */
  const put = (value: unknown) => {
    if (++values > mostValues) throw new TooManyValues(`There are more than ${mostValues} values`);
    const top = stack.at(-1);
    if (!top) root = value;
    else if (top.items) top.items.push(value);
    else if (top.key === '__proto__')
      Object.defineProperty(top.object, top.key, {
        value,
        writable: true,
        enumerable: true,
        configurable: true,
      });
    else top.object![top.key] = value;
    expected = 'next';
  };

  while (at < bytes.length) {
    if (at >= pieceBytes || values >= pieceValues) {
      yield;
      pieceBytes = at + PIECE_BYTES;
      pieceValues = values + PIECE_VALUES;
    }
    const byte = bytes[at]!;
    if (byte === 0x20 || byte === 0x0a || byte === 0x0d || byte === 0x09) {
      at++;
      continue;
    }
    const top: Frame | undefined = stack.at(-1);
    if (expected === 'next') {
      if (!top) throw wrong(at);
      at++;
      if (byte === COMMA) expected = top.items ? 'value' : 'key';
      else if (byte === (top.items ? ARRAY_END : OBJECT_END)) stack.pop();
      else throw wrong(at - 1);
    } else if (expected === 'colon') {
      if (byte !== COLON) throw wrong(at);
      at++;
      expected = 'value';
    } else if (
      (byte === ARRAY_END && expected === 'firstValue') ||
      (byte === OBJECT_END && expected === 'firstKey')
    ) {
      at++;
      stack.pop();
      expected = 'next';
    } else if (expected === 'key' || expected === 'firstKey') {
      if (byte !== QUOTE) throw wrong(at);
      const end = stringEnd(bytes, at);
      top!.key = stringOf(bytes, at, end);
      at = end;
      expected = 'colon';
    } else if (byte === QUOTE) {
      const end = stringEnd(bytes, at);
      put(stringOf(bytes, at, end));
      at = end;
    } else if (byte === ARRAY) {
      const items: unknown[] = [];
      put(items);
      stack.push({ items, key: '' });
      expected = 'firstValue';
      at++;
    } else if (byte === OBJECT) {
      const object = {};
      put(object);
      stack.push({ object, key: '' });
      expected = 'firstKey';
      at++;
    } else {
      const end = literalEnd(bytes, at);
      put(JSON.parse(bytes.toString('utf8', at, end)));
      at = end;
    }
  }
  if (expected !== 'next' || stack.length > 0) throw new SyntaxError('The JSON text ends too early');
  return root;
}

/** Where what follows the string begins. */
function stringEnd(bytes: Buffer, start: number): number {
  for (let at = start; ;) {
    at = bytes.indexOf(QUOTE, at + 1);
    if (at === -1) throw new SyntaxError('A string in the JSON text does not end');
    let backslashes = 0;
    while (bytes[at - 1 - backslashes] === BACKSLASH) backslashes++;
    if (backslashes % 2 === 0) return at + 1;
  }
}

/** Most strings have no escapes, and need no second copy. */
function stringOf(bytes: Buffer, start: number, end: number): string {
  if (end - start > LONG_STRING && !bytes.subarray(start, end).includes(BACKSLASH)) {
    const text = bytes.toString('utf8', start + 1, end - 1);
    if (!CONTROL.test(text)) return text;
  }
  return JSON.parse(bytes.toString('utf8', start, end)) as string;
}

function literalEnd(bytes: Buffer, start: number): number {
  let at = start;
  while (at < bytes.length && isLiteral(bytes[at]!)) if (++at - start > LONGEST_LITERAL) throw wrong(start);
  if (at === start) throw wrong(at);
  return at;
}

/** Digits, signs, points and letters. */
function isLiteral(byte: number): boolean {
  return (
    (byte >= 0x30 && byte <= 0x39) ||
    (byte >= 0x61 && byte <= 0x7a) ||
    byte === 0x45 ||
    byte === 0x2b ||
    byte === 0x2d ||
    byte === 0x2e
  );
}

function wrong(at: number): SyntaxError {
  return new SyntaxError(`The JSON text is wrong at byte ${at}`);
}
