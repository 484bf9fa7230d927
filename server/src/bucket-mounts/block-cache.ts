/** Blocks of objects that were read, or are being read ahead, of all mounts of a server. */
import { Semaphore } from '../lib/semaphore.ts';

export const BLOCK_BYTES = 1024 * 1024;

interface Block {
  owner: string;
  data: Promise<Buffer>;
}

export class BlockCache {
  readonly #most: number;
  readonly #loads: Semaphore;
  /** The one that was used the longest ago is the first. */
  readonly #blocks = new Map<string, Block>();
  readonly #counts = new Map<string, number>();

  constructor({ bytes, loads }: { bytes: number; loads: number }) {
    this.#most = Math.max(8, Math.floor(bytes / BLOCK_BYTES));
    this.#loads = new Semaphore(loads);
  }

  get size(): number {
    return this.#blocks.size;
  }

  get(owner: string, key: string, load: () => Promise<Buffer>): Promise<Buffer> {
    const id = `${owner}\n${key}`;
    const known = this.#blocks.get(id);
    if (known) {
      this.#blocks.delete(id);
      this.#blocks.set(id, known);
      return known.data;
    }
    this.#makeRoom(owner);
    const data = this.#loads.run(load);
    this.#blocks.set(id, { owner, data });
    this.#counts.set(owner, (this.#counts.get(owner) ?? 0) + 1);
    // Whoever asked gets the failure. The next one tries again.
    data.catch(() => this.#blocks.get(id)?.data === data && this.#drop(id));
    return data;
  }

  dropOwner(owner: string): void {
    for (const [id, block] of [...this.#blocks]) if (block.owner === owner) this.#drop(id);
  }

  /** One owner has a quarter at most. */
  get #share(): number {
    return Math.max(4, Math.floor(this.#most / 4));
  }

  #makeRoom(owner: string): void {
    if ((this.#counts.get(owner) ?? 0) >= this.#share)
      for (const [id, block] of this.#blocks)
        if (block.owner === owner) {
          this.#drop(id);
          break;
        }
    if (this.#blocks.size >= this.#most) this.#drop(this.#blocks.keys().next().value!);
  }

  #drop(id: string): void {
    const block = this.#blocks.get(id);
    if (!block) return;
    this.#blocks.delete(id);
    const count = this.#counts.get(block.owner)! - 1;
    if (count > 0) this.#counts.set(block.owner, count);
    else this.#counts.delete(block.owner);
  }
}
