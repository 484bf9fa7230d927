import { Buffer } from 'node:buffer';
import { StringDecoder } from 'node:string_decoder';
import { BoundedBytes } from './bounded-bytes.ts';

/** A text that stays bytes until it is written. */
export class JsonText {
  readonly bytes: BoundedBytes;
  readonly encoding: 'utf8' | 'base64';

  constructor(bytes: BoundedBytes, encoding: 'utf8' | 'base64') {
    this.bytes = bytes;
    this.encoding = encoding;
  }

  toJSON(): string {
    return this.bytes.whole().toString(this.encoding);
  }
}

/**
 * A list that is JSON from the moment its items are added. Bytes outside of the heap take less memory than
 * the items, and none that has to be searched for what can be freed.
 */
export class JsonList {
  readonly #bytes = new BoundedBytes(Infinity);
  #count = 0;

  add(item: object): void {
    this.#bytes.addText(`${this.#count++ === 0 ? '' : ','}${JSON.stringify(item)}`);
  }

  get bytes(): number {
    return this.#bytes.length;
  }

  blocks(): Buffer[] {
    return this.#bytes.blocks();
  }

  /** Gives back the memory. Its pieces are views of it: all must have been written. */
  free(): void {
    this.#bytes.free();
  }

  toJSON(): unknown {
    return JSON.parse(`[${this.#bytes.whole().toString()}]`);
  }
}

const TEXT_BYTES = 24 * 1024;
const LIST_BYTES = 128 * 1024;
const ARRAY_CHARACTERS = 32 * 1024;
/** What has no more of either is written at once. */
const SMALL_BYTES = 64 * 1024;
const SMALL_ARRAY = 100;

/** Whether making JSON of an object could take long. */
export function isLargeJson(value: object): boolean {
  return Object.values(value).some(
    (part) =>
      (part instanceof JsonText && part.bytes.length > SMALL_BYTES) ||
      (part instanceof JsonList && part.bytes > SMALL_BYTES) ||
      (Array.isArray(part) && part.length > SMALL_ARRAY),
  );
}

/**
 * JSON of an object, in pieces that take less than a millisecond each: by the items of its arrays and parts
 * of its `JsonText`s and `JsonList`s. It can be made once: the bytes of a `JsonText` are given back.
 */
export function* jsonPieces(value: object): Generator<string | Buffer> {
  let before = '{';
  for (const [key, part] of Object.entries(value)) {
    if (part === undefined) continue;
    yield `${before}${JSON.stringify(key)}:`;
    before = ',';
    if (part instanceof JsonText) {
      yield* textPieces(part);
      // All of it has become strings.
      part.bytes.free();
    } else if (part instanceof JsonList) yield* listPieces(part);
    else if (Array.isArray(part)) yield* arrayPieces(part);
    else yield JSON.stringify(part);
  }
  yield before === '{' ? '{}' : '}';
}

function* textPieces({ bytes, encoding }: JsonText): Generator<string> {
  const blocks = bytes.blocks();
  yield '"';
  if (encoding === 'base64') yield* base64Pieces(blocks);
  else {
    const decoder = new StringDecoder('utf8');
    for (const piece of cut(blocks, TEXT_BYTES)) yield inner(decoder.write(piece));
    yield inner(decoder.end());
  }
  yield '"';
}

/** Three bytes become four characters, so what is left of a piece goes with the next. */
function* base64Pieces(blocks: readonly Buffer[]): Generator<string> {
  let rest: Buffer = Buffer.alloc(0);
  for (const piece of cut(blocks, TEXT_BYTES)) {
    const bytes = rest.length === 0 ? piece : Buffer.concat([rest, piece]);
    const end = bytes.length - (bytes.length % 3);
    yield bytes.toString('base64', 0, end);
    rest = bytes.subarray(end);
  }
  yield rest.toString('base64');
}

function* listPieces(list: JsonList): Generator<string | Buffer> {
  yield '[';
  yield* cut(list.blocks(), LIST_BYTES);
  yield ']';
}

function* cut(blocks: readonly Buffer[], bytes: number): Generator<Buffer> {
  for (const block of blocks)
    for (let at = 0; at < block.length; at += bytes) yield block.subarray(at, at + bytes);
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
