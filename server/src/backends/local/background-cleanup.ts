/**
 * What is left of something that was replaced is removed in the background: the caller of the change
 * does not wait for it. A failure costs nothing but space until the next sweep.
 */
export class BackgroundCleanup<K> {
  readonly #running = new Map<K, Promise<void>>();
  readonly #onError: (error: unknown) => void;

  constructor(onError: (error: unknown) => void) {
    this.#onError = onError;
  }

  start(key: K, task: () => Promise<void>): void {
    const before = this.#running.get(key) ?? Promise.resolve();
    const running = before
      .then(task)
      .catch(this.#onError)
      .finally(() => {
        if (this.#running.get(key) === running) this.#running.delete(key);
      });
    this.#running.set(key, running);
  }

  /** Resolves when no cleanup of this key, or of any, is under way. */
  async settled(key?: K): Promise<void> {
    if (key === undefined) await Promise.all(this.#running.values());
    else await this.#running.get(key);
  }
}
