import { Buffer } from 'node:buffer';

const FIRST_BYTES = 256;
/** Smaller buffers come from a pool that Node shares. */
const OWN_BYTES = 16 * 1024;
/** The most that a character of a string takes. */
const CHARACTER_BYTES = 3;
/** An announced length may be a lie. */
const MOST_EXPECTED = 1024 * 1024;
/** A block grows up to this size by copying; then another one follows. */
const BLOCK_BYTES = 1024 * 1024;

/**
 * Collects bytes up to a maximum. Memory is about what was added, in however small pieces it comes: an array
 * of one-byte pieces would cost a hundred times as much.
 */
export class BoundedBytes {
  readonly #maxBytes: number;
  readonly #expected: number;
  /** Blocks that are full. */
  readonly #full: Buffer[] = [];
  #block: Buffer | undefined;
  #used = 0;
  #length = 0;

  /** `expected` is the probable length; space for it is allocated at once. */
  constructor(maxBytes: number, expected = 0) {
    this.#maxBytes = maxBytes;
    this.#expected = Math.min(expected, MOST_EXPECTED);
  }

  get length(): number {
    return this.#length;
  }

  /**
   * Adds as much of it as fits, and returns how much that was. The caller must not change the piece
   * afterwards.
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

  /** Adds a text as UTF-8 if it fits whatever its characters are; otherwise nothing of it. */
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
   * Frees the memory at once instead of at the next garbage collection, which may be hundreds of megabytes
   * later. Nothing may use it any more: no view of it, and no pending write.
   */
  free(): void {
    for (const { buffer, byteLength } of this.#block ? [...this.#full, this.#block] : [])
      if (byteLength >= OWN_BYTES) (buffer as ArrayBuffer).transfer(0);
    this.#full.length = 0;
    this.#block = undefined;
    this.#used = 0;
    this.#length = 0;
  }

  /** Everything that was added, as the blocks that hold it. Nothing may be added afterwards. */
  blocks(): Buffer[] {
    return this.#block ? [...this.#full, this.#block.subarray(0, this.#used)] : [];
  }

  /** Everything that was added, in one buffer. Nothing may be added afterwards. */
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

/**
 * All bytes of a source; undefined as soon as it has more than the maximum, and then the source is closed.
 */
export async function collectBytes(
  source: AsyncIterable<Uint8Array>,
  maxBytes: number,
  expected?: number,
): Promise<Buffer | undefined> {
  const bytes = new BoundedBytes(maxBytes, expected);
  for await (const piece of source) if (bytes.add(piece) < piece.length) return undefined;
  return bytes.whole();
}
