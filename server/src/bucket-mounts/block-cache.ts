/** Blocks of objects that were read, or are being read ahead, of all mounts of a server. */
import { Semaphore } from '../lib/semaphore.ts';

export const BLOCK_BYTES = 1024 * 1024;

/** For whom a block is kept. */
export interface BlockOwner {
  mount: string;
  /** Those of one project have a share together. */
  project: string;
}

interface Block {
  owner: BlockOwner;
  data: Promise<Buffer>;
}

export class BlockCache {
  readonly #most: number;
  readonly #mostLoads: number;
  /** Each project has its own: a server of one that never answers holds up nobody else. */
  readonly #loads = new Map<string, { turns: Semaphore; uses: number }>();
  /** The one that was used the longest ago is the first. */
  readonly #blocks = new Map<string, Block>();
  readonly #counts = new Map<string, number>();

  /** `loads`: what one project loads at once. */
  constructor({ bytes, loads }: { bytes: number; loads: number }) {
    this.#most = Math.max(8, Math.floor(bytes / BLOCK_BYTES));
    this.#mostLoads = loads;
  }

  get size(): number {
    return this.#blocks.size;
  }

  /** How many blocks a project has. */
  ofProject(project: string): number {
    return this.#counts.get(project) ?? 0;
  }

  get(owner: BlockOwner, key: string, load: () => Promise<Buffer>): Promise<Buffer> {
    const id = `${owner.mount}\n${key}`;
    const known = this.#blocks.get(id);
    if (known) {
      this.#blocks.delete(id);
      this.#blocks.set(id, known);
      return known.data;
    }
    this.#makeRoom(owner.project);
    const data = this.#load(owner.project, load);
    this.#blocks.set(id, { owner, data });
    this.#counts.set(owner.project, (this.#counts.get(owner.project) ?? 0) + 1);
    // Whoever asked gets the failure. The next one tries again.
    data.catch(() => this.#blocks.get(id)?.data === data && this.#drop(id));
    return data;
  }

  async #load(project: string, load: () => Promise<Buffer>): Promise<Buffer> {
    const loads = this.#loads.get(project) ?? { turns: new Semaphore(this.#mostLoads), uses: 0 };
    this.#loads.set(project, loads);
    loads.uses++;
    try {
      return await loads.turns.run(load);
    } finally {
      if (--loads.uses === 0) this.#loads.delete(project);
    }
  }

  dropMount(mount: string): void {
    for (const [id, block] of [...this.#blocks]) if (block.owner.mount === mount) this.#drop(id);
  }

  /** One project has a quarter at most. */
  get #share(): number {
    return Math.max(4, Math.floor(this.#most / 4));
  }

  #makeRoom(project: string): void {
    if ((this.#counts.get(project) ?? 0) >= this.#share)
      for (const [id, block] of this.#blocks)
        if (block.owner.project === project) {
          this.#drop(id);
          break;
        }
    if (this.#blocks.size >= this.#most) this.#drop(this.#blocks.keys().next().value!);
  }

  #drop(id: string): void {
    const block = this.#blocks.get(id);
    if (!block) return;
    this.#blocks.delete(id);
    const { project } = block.owner;
    const count = this.#counts.get(project)! - 1;
    if (count > 0) this.#counts.set(project, count);
    else this.#counts.delete(project);
  }
}
