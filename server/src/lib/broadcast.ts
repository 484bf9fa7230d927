/**
 * Passes values to any number of readers. A reader that does not keep up holds at most `limit` values and is
 * then ended, so that it notices and subscribes again, and memory stays bounded.
 */
export class Broadcast<T> {
  readonly #readers = new Set<(value: T) => void>();
  readonly #enders = new Set<() => void>();

  /** Without readers no value need be made. */
  get hasReaders(): boolean {
    return this.#readers.size > 0;
  }

  send(value: T): void {
    for (const reader of this.#readers) reader(value);
  }

  /** Ends every reader. */
  close(): void {
    for (const end of this.#enders) end();
  }

  /** Subscribes at once, before the first value is asked for. */
  subscribe(options: { signal?: AbortSignal; limit?: number } = {}): AsyncIterableIterator<T> {
    const limit = options.limit ?? 10_000;
    const queue: T[] = [];
    let wake: (() => void) | undefined;
    let over = false;
    const end = () => {
      over = true;
      this.#readers.delete(receive);
      this.#enders.delete(end);
      options.signal?.removeEventListener('abort', end);
      wake?.();
    };
    const receive = (value: T) => {
      queue.push(value);
      if (queue.length > limit) end();
      wake?.();
    };
    this.#readers.add(receive);
    this.#enders.add(end);
    if (options.signal?.aborted) end();
    else options.signal?.addEventListener('abort', end, { once: true });
    return {
      [Symbol.asyncIterator]() {
        return this;
      },
      async next(): Promise<IteratorResult<T>> {
        for (;;) {
          if (queue.length > 0) return { value: queue.shift() as T, done: false };
          if (over) return { value: undefined, done: true };
          await new Promise<void>((resolve) => (wake = resolve));
          wake = undefined;
        }
      },
      return(): Promise<IteratorResult<T>> {
        end();
        return Promise.resolve({ value: undefined, done: true });
      },
    };
  }
}
