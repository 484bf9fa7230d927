import { Buffer } from 'node:buffer';

const FIRST_BYTES = 256;
/** Smaller blocks come from a pool that is shared with others. */
const OWN_BYTES = 16 * 1024;
/** The most that a character of a string takes. */
const CHARACTER_BYTES = 3;
/** Who says that much will come may not send it. */
const MOST_EXPECTED = 1024 * 1024;
/** A block grows up to this size by being copied; then another one follows. Copying more would take long. */
const BLOCK_BYTES = 1024 * 1024;

/**
 * Bytes that are collected, at most so many. What is held is about what was added, in however small pieces it
 * comes: an array of pieces would cost a hundred times as much for those of one byte.
 */
export class BoundedBytes {
  readonly #maxBytes: number;
  readonly #expected: number;
  /** Blocks that are full. */
  readonly #full: Buffer[] = [];
  #block: Buffer | undefined;
  #used = 0;
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
    for (let at = 0; at < taken;) {
      const block = this.#room(taken - at);
      const bytes = Math.min(taken - at, block.length - this.#used);
      block.set(bytes === piece.length ? piece : piece.subarray(at, at + bytes), this.#used);
      at += bytes;
      this.#used += bytes;
      this.#length += bytes;
    }
    return taken;
  }

  /** Adds all of a text, as UTF-8, if there is room for it whatever its characters are; else nothing of it. */
  addText(text: string): boolean {
    const most = text.length * CHARACTER_BYTES;
    if (most > this.#maxBytes - this.#length) return false;
    const block = this.#room(most);
    if (block.length - this.#used < most) this.add(Buffer.from(text));
    else {
      const bytes = block.write(text, this.#used);
      this.#used += bytes;
      this.#length += bytes;
    }
    return true;
  }

  /**
   * Gives back the memory of what was added, at once and not when it is found to be garbage, which may be
   * hundreds of megabytes later. Nothing may read it any more: no view of it, and no write that is under way.
   */
  free(): void {
    for (const { buffer, byteLength } of this.#block ? [...this.#full, this.#block] : [])
      if (byteLength >= OWN_BYTES) (buffer as ArrayBuffer).transfer(0);
    this.#full.length = 0;
    this.#block = undefined;
    this.#used = 0;
    this.#length = 0;
  }

  /** All that was added, as the blocks that it is held in. Nothing may be added after this. */
  blocks(): Buffer[] {
    return this.#block ? [...this.#full, this.#block.subarray(0, this.#used)] : [];
  }

  /** All that was added, as one. Nothing may be added after this. */
  whole(): Buffer {
    const blocks = this.blocks();
    return blocks.length === 1 ? blocks[0]! : Buffer.concat(blocks);
  }

  /** A block with room for at least one of so many bytes. */
  #room(wanted: number): Buffer {
    const block = this.#block;
    if (block && this.#used < block.length) return block;
    if (block && block.length >= BLOCK_BYTES) {
      this.#full.push(block);
      this.#used = 0;
      const left = this.#maxBytes - this.#length;
      return (this.#block = Buffer.allocUnsafeSlow(Math.min(BLOCK_BYTES, left)));
    }
    const size = Math.max(this.#used + wanted, 2 * this.#used, FIRST_BYTES, this.#expected);
    const bytes = Math.min(this.#maxBytes, size, BLOCK_BYTES);
    const larger = bytes < OWN_BYTES ? Buffer.allocUnsafe(bytes) : Buffer.allocUnsafeSlow(bytes);
    block?.copy(larger, 0, 0, this.#used);
    return (this.#block = larger);
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
