import { changeSignal } from './change-signal.ts';

/** What everything in a sandbox goes through, and waits at while it is frozen. */
export interface Gate {
  readonly closed: boolean;
  close(): void;
  open(): void;
  /** Resolves when it is open, or once one of the signals is aborted: who waited looks at those itself. */
  pass(...signals: (AbortSignal | undefined)[]): Promise<void>;
  /** The same items, none of them while it is closed. */
  through<T>(items: AsyncIterable<T>, ...signals: (AbortSignal | undefined)[]): AsyncIterable<T>;
}

export function gate(): Gate {
  const changed = changeSignal();
  let closed = false;
  const made: Gate = {
    get closed() {
      return closed;
    },
    close() {
      closed = true;
    },
    open() {
      closed = false;
      changed.notify();
    },
    async pass(...signals) {
      while (closed && !signals.some((signal) => signal?.aborted)) {
        const woken = new AbortController();
        const aborted = new Promise<void>((resolve) => {
          for (const signal of signals)
            signal?.addEventListener('abort', () => resolve(), { once: true, signal: woken.signal });
        });
        await Promise.race([changed.wait(), aborted]);
        woken.abort();
      }
    },
    through: (items, ...signals) => ({
      async *[Symbol.asyncIterator]() {
        for await (const item of items) {
          await made.pass(...signals);
          yield item;
        }
      },
    }),
  };
  return made;
}
