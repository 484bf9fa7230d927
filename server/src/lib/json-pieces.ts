import { Buffer } from 'node:buffer';
import { StringDecoder } from 'node:string_decoder';

/** A text that stays bytes until it is written. */
export class JsonText {
  readonly bytes: Buffer;
  readonly encoding: 'utf8' | 'base64';

  constructor(bytes: Buffer, encoding: 'utf8' | 'base64') {
    this.bytes = bytes;
    this.encoding = encoding;
  }

  toJSON(): string {
    return this.bytes.toString(this.encoding);
  }
}

/** A multiple of 3, so that base64 can be put together. A NUL becomes six characters. */
const TEXT_BYTES = 24 * 1024;
const ARRAY_CHARACTERS = 32 * 1024;
/** What has no more of either is written at once. */
const SMALL_BYTES = 64 * 1024;
const SMALL_ARRAY = 100;

/** Whether making JSON of an object could take long. */
export function isLargeJson(value: object): boolean {
  return Object.values(value).some(
    (part) =>
      (part instanceof JsonText && part.bytes.length > SMALL_BYTES) ||
      (Array.isArray(part) && part.length > SMALL_ARRAY),
  );
}

/**
 * JSON of an object, in pieces that take about a millisecond each: by the items of its arrays and parts of
 * its `JsonText`s.
 */
export function* jsonPieces(value: object): Generator<string> {
  let before = '{';
  for (const [key, part] of Object.entries(value)) {
    if (part === undefined) continue;
    yield `${before}${JSON.stringify(key)}:`;
    before = ',';
    if (part instanceof JsonText) yield* textPieces(part);
    else if (Array.isArray(part)) yield* arrayPieces(part);
    else yield JSON.stringify(part);
  }
  yield before === '{' ? '{}' : '}';
}

function* textPieces({ bytes, encoding }: JsonText): Generator<string> {
  yield '"';
  const decoder = new StringDecoder('utf8');
  for (let at = 0; at < bytes.length; at += TEXT_BYTES) {
    const piece = bytes.subarray(at, at + TEXT_BYTES);
    yield encoding === 'base64' ? piece.toString('base64') : inner(decoder.write(piece));
  }
  yield `${inner(decoder.end())}"`;
}

function* arrayPieces(items: unknown[]): Generator<string> {
  let piece = '[';
  for (let index = 0; index < items.length; index++) {
    piece += `${index === 0 ? '' : ','}${JSON.stringify(items[index]) ?? 'null'}`;
    if (piece.length < ARRAY_CHARACTERS) continue;
    yield piece;
    piece = '';
  }
  yield `${piece}]`;
}

function inner(text: string): string {
  return JSON.stringify(text).slice(1, -1);
}
