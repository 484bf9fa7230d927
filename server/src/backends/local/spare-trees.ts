/**
 * A few clones of the template in use, made in advance: cloning takes about as long as half a
 * container's start, and a clone that waits costs nothing but its name.
 *
 * They are active trees like those of sandboxes. One that was not used is swept with the other orphans
 * when the next server opens.
 */
import type { Snapshotter } from '../../host/snapshots/snapshotter.ts';
import { inBackground } from '../../lib/in-background.ts';

export interface SpareTreesOptions {
  trees: Snapshotter;
  size: number;
  newKey(): string;
  quotaBytes: number | null | undefined;
  onError(error: unknown): void;
}

export class SpareTrees {
  readonly #options: SpareTreesOptions;
  #parent: string | undefined;
  #ready: string[] = [];
  /** Being made or removed. */
  readonly #changing = new Set<string>();
  #filling: Promise<void> | undefined;
  #closed = false;

  constructor(options: SpareTreesOptions) {
    this.#options = options;
  }

  /** The key of a clone of `parent`, or nothing. Clones of another parent go away. */
  take(parent: string): string | undefined {
    if (this.#parent !== parent) {
      const outdated = this.#ready.splice(0);
      this.#parent = parent;
      inBackground(this.#drop(outdated), this.#options.onError);
    }
    const key = this.#ready.shift();
    // Not at once: the caller that took it is about to start an instance.
    if (!this.#filling) setTimeout(() => this.#fill(), 100).unref();
    return key;
  }

  /** Names of all spare trees. The sweep spares them. */
  names(): string[] {
    return [...this.#ready, ...this.#changing];
  }

  async close(): Promise<void> {
    this.#closed = true;
    await this.#filling;
    await this.#drop(this.#ready.splice(0));
  }

  #fill(): void {
    if (this.#closed || this.#filling || this.#parent === undefined) return;
    this.#filling = this.#make(this.#parent)
      .catch(this.#options.onError)
      .finally(() => {
        this.#filling = undefined;
      });
  }

  async #make(parent: string): Promise<void> {
    while (!this.#closed && this.#parent === parent && this.#ready.length < this.#options.size) {
      const key = this.#options.newKey();
      this.#changing.add(key);
      try {
        await this.#options.trees.prepare(key, { parent, quotaBytes: this.#options.quotaBytes });
        if (this.#parent === parent) this.#ready.push(key);
        else await this.#drop([key]);
      } finally {
        this.#changing.delete(key);
      }
    }
  }

  async #drop(keys: string[]): Promise<void> {
    for (const key of keys) this.#changing.add(key);
    for (const key of keys) {
      await this.#options.trees.remove(key).catch(this.#options.onError);
      this.#changing.delete(key);
    }
  }
}
