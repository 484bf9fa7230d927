import type { CayError, CommandEnd } from '@cay/sdk/protocol';
import type { AttachedCommand } from './command-handle.ts';
import type { CommandHandle, OutputChunk, OutputGap } from './guest.ts';
import { ignoreFailure, inBackground } from '../lib/in-background.ts';

const DONE: IteratorReturnResult<undefined> = { done: true, value: undefined };

type Output = OutputChunk | OutputGap;

/**
 * A reader of a command that survives connections: when one ends it attaches again from the first byte that
 * was not handed out, so no output is lost or repeated.
 *
 * Input has no offsets. A write in progress when the connection ends rejects with `unavailable`, and it is
 * unknown how much of it arrived.
 */
export class ResumingCommand implements CommandHandle, AsyncIterator<Output> {
  readonly id: string;
  readonly pid: number;
  readonly existing: boolean;
  readonly output: AsyncIterable<Output> = { [Symbol.asyncIterator]: () => this.#iterate() };
  readonly ended: Promise<CommandEnd>;

  readonly #attachAgain: (last: AttachedCommand) => Promise<AttachedCommand>;
  readonly #firstOutput: AsyncIterable<Output>;
  #inner: AttachedCommand;
  #resuming: Promise<boolean> | undefined;
  #failure: CayError | undefined;
  #closed = false;
  #resolveEnded!: (end: CommandEnd) => void;

  /** `attachAgain` waits for another connection; if it rejects, the command ends as lost. */
  constructor(inner: AttachedCommand, attachAgain: (last: AttachedCommand) => Promise<AttachedCommand>) {
    this.id = inner.id;
    this.pid = inner.pid;
    this.existing = inner.existing;
    this.ended = new Promise((resolve) => {
      this.#resolveEnded = resolve;
    });
    this.#inner = inner;
    this.#firstOutput = inner.output;
    this.#attachAgain = attachAgain;
    this.#follow();
  }

  async next(): Promise<IteratorResult<Output>> {
    for (;;) {
      const inner = this.#inner;
      const result = await inner.next();
      if (!result.done || this.#closed || !inner.interrupted) return result;
      if (inner !== this.#inner || (await this.#resume())) continue;
      if (this.#failure?.code === 'cancelled' || this.#failure?.code === 'deadline_exceeded')
        throw this.#failure;
      return DONE;
    }
  }

  return(): Promise<IteratorResult<Output>> {
    this.close();
    return Promise.resolve(DONE);
  }

  async write(data: Uint8Array): Promise<void> {
    await this.#connected();
    await this.#inner.write(data);
  }

  async closeStdin(): Promise<void> {
    await this.#connected();
    await this.#inner.closeStdin();
  }

  close(): void {
    if (this.#closed) return;
    this.#closed = true;
    this.#inner.close();
    // Otherwise a handle that waits for a connection would keep waiting.
    if (this.#inner.interrupted)
      this.#resolveEnded({ kind: 'lost', reason: 'The handle was closed before the command ended' });
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.close();
  }

  #iterate(): AsyncIterator<Output> {
    this.#firstOutput[Symbol.asyncIterator](); // throws the second time
    return this;
  }

  #follow(): void {
    const inner = this.#inner;
    const followed = inner.ended.then(async (end) => {
      if (!inner.interrupted || end.kind !== 'lost' || this.#closed) this.#resolveEnded(end);
      else if (inner === this.#inner) await this.#resume();
    });
    inBackground(followed, ignoreFailure);
  }

  async #connected(): Promise<void> {
    while (this.#inner.interrupted && !this.#closed) {
      if (!(await this.#resume())) throw this.#failure as CayError; // set whenever resuming fails
    }
  }

  #resume(): Promise<boolean> {
    this.#resuming ??= this.#attachAgain(this.#inner).then(
      (inner) => {
        this.#resuming = undefined;
        this.#inner = inner;
        if (this.#closed) inner.close();
        this.#follow();
        return !this.#closed;
      },
      (error: CayError) => {
        this.#failure = error;
        this.#resolveEnded({ kind: 'lost', reason: error.message });
        return false;
      },
    );
    return this.#resuming;
  }
}
