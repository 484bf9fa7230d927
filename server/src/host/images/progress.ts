import type { LayerProgress, PullProgress } from './image.ts';
import type { Descriptor } from './manifest.ts';

export type Listener = (progress: PullProgress) => void;

const EVERY_MS = 100;

/** How far a pull is, reported to its listeners a few times a second. */
export class ProgressMeter {
  readonly #layers = new Map<string, LayerProgress>();
  readonly #listeners = new Set<Listener>();
  #state: PullProgress['state'] = 'resolving';
  #reportedAt = 0;

  listen(listener: Listener): () => void {
    this.#listeners.add(listener);
    listener(this.now());
    return () => void this.#listeners.delete(listener);
  }

  /** The layers that have to be fetched. */
  begin(layers: readonly Descriptor[]): void {
    for (const { digest, size } of layers)
      this.#layers.set(digest, { digest, totalBytes: size, fetchedBytes: 0, state: 'waiting' });
    this.enter('fetching');
  }

  enter(state: PullProgress['state']): void {
    this.#state = state;
    this.#report(true);
  }

  layer(digest: string, change: Partial<LayerProgress>): void {
    const layer = this.#layers.get(digest);
    if (!layer) return;
    const isNew = change.state !== undefined && change.state !== layer.state;
    Object.assign(layer, change);
    this.#report(isNew);
  }

  now(): PullProgress {
    const layers = [...this.#layers.values()].map((layer) => ({ ...layer }));
    const sum = (key: 'totalBytes' | 'fetchedBytes') => layers.reduce((total, each) => total + each[key], 0);
    return {
      state: this.#state,
      totalBytes: sum('totalBytes'),
      fetchedBytes: sum('fetchedBytes'),
      layers,
    };
  }

  #report(atOnce: boolean): void {
    const now = performance.now();
    if (this.#listeners.size === 0 || (!atOnce && now - this.#reportedAt < EVERY_MS)) return;
    this.#reportedAt = now;
    const progress = this.now();
    for (const listener of this.#listeners) listener(progress);
  }
}
