import { changeSignal } from './change-signal.ts';

/** Thrown at a writer of a pipe without a reader. */
export class BrokenPipe extends Error {
  override readonly name = 'BrokenPipe';
}

/** Bytes from one writer to one reader, of which a bounded amount is under way. */
export interface BytePipe extends AsyncIterable<Uint8Array> {
  /** Resolves when there is room for more. Throws `BrokenPipe` if the reader has left. */
  write(data: Uint8Array): Promise<void>;
  /** No more is written; what is under way can still be read. */
  end(): void;
  /** The reader has left. */
  close(): void;
}

export function bytePipe(capacity = 256 * 1024): BytePipe {
  const chunks: Uint8Array[] = [];
  const changed = changeSignal();
  let held = 0;
  let ended = false;
  let closed = false;

  function close(): void {
    closed = true;
    chunks.length = 0;
    changed.notify();
  }

  return {
    async write(data) {
      if (closed || ended) throw new BrokenPipe();
      if (data.length === 0) return;
      chunks.push(data.slice());
      held += data.length;
      changed.notify();
      while (held >= capacity && !closed) await changed.wait();
    },
    end() {
      ended = true;
      changed.notify();
    },
    close,
    async *[Symbol.asyncIterator]() {
      try {
        while (!closed) {
          const chunk = chunks.shift();
          if (chunk) {
            held -= chunk.length;
            changed.notify();
            yield chunk;
          } else if (ended) {
            return;
          } else {
            await changed.wait();
          }
        }
      } finally {
        close();
      }
    },
  };
}
