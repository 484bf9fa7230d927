/** Reads objects by blocks. Who reads in order finds the next ones here already. */
import type { Bucket } from '../s3/bucket.ts';
import { BLOCK_BYTES, type BlockCache, type BlockOwner } from './block-cache.ts';
import type { Node, ObjectFacts } from './nodes.ts';

const MOST_AHEAD = 16;
/** The kernel asks for several pieces at once, which may come in another order. */
const NEARBY = 2 * BLOCK_BYTES;
const READ_MS = 60_000;

interface Place {
  next: number;
  ahead: number;
}

export class ReadAhead {
  readonly #bucket: Bucket;
  readonly #prefix: string;
  readonly #cache: BlockCache;
  readonly #owner: BlockOwner;
  readonly #places = new WeakMap<Node, Place>();

  constructor(bucket: Bucket, prefix: string, cache: BlockCache, owner: BlockOwner) {
    this.#bucket = bucket;
    this.#prefix = prefix;
    this.#cache = cache;
    this.#owner = owner;
  }

  /** Fewer bytes at the end of the object. */
  async read(node: Node, key: string, facts: ObjectFacts, from: number, length: number): Promise<Buffer[]> {
    const to = Math.min(from + length, facts.sizeBytes);
    if (to <= from) return [];
    const first = Math.floor(from / BLOCK_BYTES);
    const last = Math.floor((to - 1) / BLOCK_BYTES);
    const coming: Promise<Buffer>[] = [];
    for (let block = first; block <= last; block++) coming.push(this.#block(node, key, facts, block));
    this.#goAhead(node, key, facts, { from, to, last });
    const blocks = await Promise.all(coming);
    return blocks.map((bytes, index) => {
      const start = (first + index) * BLOCK_BYTES;
      return bytes.subarray(Math.max(0, from - start), Math.min(bytes.length, to - start));
    });
  }

  #goAhead(
    node: Node,
    key: string,
    facts: ObjectFacts,
    { from, to, last }: { from: number; to: number; last: number },
  ): void {
    const place = this.#places.get(node) ?? { next: 0, ahead: 1 };
    this.#places.set(node, place);
    if (Math.abs(from - place.next) > NEARBY) {
      Object.assign(place, { next: to, ahead: 0 });
      return;
    }
    place.next = Math.max(place.next, to);
    place.ahead = Math.min(MOST_AHEAD, Math.max(1, place.ahead * 2));
    const end = Math.min(last + place.ahead, Math.floor((facts.sizeBytes - 1) / BLOCK_BYTES));
    for (let block = last + 1; block <= end; block++) this.#block(node, key, facts, block).catch(() => {});
  }

  #block(node: Node, key: string, facts: ObjectFacts, block: number): Promise<Buffer> {
    const { etag, sizeBytes, modifiedAtMs } = facts;
    const from = block * BLOCK_BYTES;
    const to = Math.min(from + BLOCK_BYTES, sizeBytes);
    const object = { key: this.#prefix + key, etag, sizeBytes, modifiedAtMs };
    return this.#cache.get(this.#owner, `${node.id}:${etag}:${sizeBytes}:${block}`, async () => {
      const signal = AbortSignal.timeout(READ_MS);
      if (to - from < sizeBytes) return this.#bucket.read(object, { from, to, signal });
      // A whole object has a checksum.
      return Buffer.concat(await Array.fromAsync(this.#bucket.get(object.key, { object, signal })));
    });
  }
}
