/** Finds texts in a stream of bytes, also where they are split between two pieces. */
export class ByteSearch {
  readonly #needles: readonly Buffer[];
  readonly #overlap: number;
  #tail = Buffer.alloc(0);

  constructor(texts: readonly string[]) {
    this.#needles = texts.filter((text) => text !== '').map((text) => Buffer.from(text));
    this.#overlap = Math.max(0, ...this.#needles.map((needle) => needle.length - 1));
  }

  /** The index of a text that is in this piece, or begins in an earlier one and ends in it. */
  find(chunk: Buffer): number | undefined {
    if (this.#needles.length === 0) return undefined;
    // Where two pieces meet, and then the piece itself: the piece is never copied.
    const seam = Buffer.concat([this.#tail, chunk.subarray(0, this.#overlap)]);
    for (const [index, needle] of this.#needles.entries())
      if (seam.includes(needle) || chunk.includes(needle)) return index;
    this.#tail =
      chunk.length >= this.#overlap
        ? Buffer.from(chunk.subarray(chunk.length - this.#overlap))
        : Buffer.concat([this.#tail, chunk]).subarray(-this.#overlap);
    return undefined;
  }
}

/** Overwrites texts in a stream with asterisks. The length of the stream stays the same. */
export class ByteMask {
  readonly #needles: readonly Buffer[];
  readonly #overlap: number;
  #held = Buffer.alloc(0);

  constructor(texts: readonly string[]) {
    this.#needles = texts.filter((text) => text !== '').map((text) => Buffer.from(text));
    this.#overlap = Math.max(0, ...this.#needles.map((needle) => needle.length - 1));
  }

  /** What may be passed on. The end of a piece is held back until it is clear that no text begins in it. */
  pass(chunk: Buffer, last: boolean): Buffer {
    if (this.#needles.length === 0) return chunk;
    const bytes = Buffer.concat([this.#held, chunk]);
    for (const needle of this.#needles)
      for (let at = bytes.indexOf(needle); at !== -1; at = bytes.indexOf(needle, at))
        bytes.fill('*', at, at + needle.length);
    const keep = last ? 0 : this.#heldFrom(bytes);
    this.#held = Buffer.from(bytes.subarray(bytes.length - keep));
    return bytes.subarray(0, bytes.length - keep);
  }

  /** How many bytes at the end could be the beginning of a text. Mostly none, so that nothing is delayed. */
  #heldFrom(bytes: Buffer): number {
    for (let length = Math.min(this.#overlap, bytes.length); length > 0; length--) {
      const end = bytes.subarray(bytes.length - length);
      if (this.#needles.some((needle) => needle.length > length && needle.subarray(0, length).equals(end)))
        return length;
    }
    return 0;
  }
}
