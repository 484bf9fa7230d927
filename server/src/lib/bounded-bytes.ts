import { Buffer } from 'node:buffer';

const FIRST_BYTES = 256;
/** Who says that much will come may not send it. */
const MOST_EXPECTED = 1024 * 1024;

/**
 * Bytes that are collected, at most so many. What is held is about what was added, in however small pieces it
 * comes: an array of pieces would cost a hundred times as much for those of one byte.
 */
export class BoundedBytes {
  readonly #maxBytes: number;
  readonly #expected: number;
  #bytes: Buffer | undefined;
  #length = 0;

  /** `expected` is how many there will probably be; room for them is made at once. */
  constructor(maxBytes: number, expected = 0) {
    this.#maxBytes = maxBytes;
    this.#expected = Math.min(expected, MOST_EXPECTED);
  }

  get length(): number {
    return this.#length;
  }

  /**
   * Takes as much of it as there is room for, and tells how much that was. The piece must not change after
   * this.
   */
  add(piece: Uint8Array): number {
    const taken = Math.min(piece.length, this.#maxBytes - this.#length);
    if (taken === 0) return 0;
    const end = this.#length + taken;
    if (this.#bytes === undefined || end > this.#bytes.length) {
      const larger = Buffer.allocUnsafe(
        Math.min(this.#maxBytes, Math.max(end, 2 * this.#length, FIRST_BYTES, this.#expected)),
      );
      this.#bytes?.copy(larger, 0, 0, this.#length);
      this.#bytes = larger;
    }
    this.#bytes.set(taken === piece.length ? piece : piece.subarray(0, taken), this.#length);
    this.#length = end;
    return taken;
  }

  /** All that was added. Nothing may be added after this. */
  whole(): Buffer {
    return this.#bytes?.subarray(0, this.#length) ?? Buffer.alloc(0);
  }
}

/** All bytes of a source; undefined as soon as it has more than so many, and then the source is closed. */
export async function collectBytes(
  source: AsyncIterable<Uint8Array>,
  maxBytes: number,
  expected?: number,
): Promise<Buffer | undefined> {
  const bytes = new BoundedBytes(maxBytes, expected);
  for await (const piece of source) if (bytes.add(piece) < piece.length) return undefined;
  return bytes.whole();
}
