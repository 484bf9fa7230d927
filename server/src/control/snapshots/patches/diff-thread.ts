import { CayError } from '@cay/sdk/protocol';
import { availableParallelism } from 'node:os';
import { Worker } from 'node:worker_threads';
import { Semaphore } from '../../../lib/semaphore.ts';
import type { DiffAnswer, DiffJob } from './diff-job.ts';

/**
 * A thread that compares files, one after the other. Whatever becomes of it is a failure of the job that it
 * has, and of nothing else.
 */
export interface DiffThread {
  /** The answer, and how long it took without waiting for its turn. */
  run(job: DiffJob): Promise<{ answer: DiffAnswer; ms: number }>;
  /** Hands it to the next, if it has nothing to do; otherwise it ends. */
  release(): void;
}

const SOURCE = new URL('./diff-worker.ts', import.meta.url);
const MAX_HEAP_MB = 512;
/** How long one file may take. */
const JOB_MS = 30_000;
/** Threads that are kept for the next, and for how long. */
const IDLE_MOST = 2;
const IDLE_MS = 10_000;
/** At most so many compute at once, so that the server has a processor left. */
const computing = new Semaphore(Math.max(1, availableParallelism() - 1));
const idle: Thread[] = [];

export function takeDiffThread(): DiffThread {
  return idle.pop()?.taken() ?? new Thread();
}

class Thread implements DiffThread {
  readonly #worker = new Worker(SOURCE, {
    resourceLimits: { maxOldGenerationSizeMb: MAX_HEAP_MB },
    stdout: false,
    stderr: false,
  });
  #job: { resolve(answer: DiffAnswer): void; reject(error: CayError): void } | undefined;
  #failure: CayError | undefined;
  /** Jobs that it has or that wait for their turn. */
  #pending = 0;
  #released = false;
  #retire: NodeJS.Timeout | undefined;

  constructor() {
    this.#worker.on('message', (answer: DiffAnswer) => this.#job?.resolve(answer));
    this.#worker.on('error', (cause) => this.#fail('failed', cause));
    this.#worker.on('exit', () => this.#fail('ended'));
  }

  taken(): this {
    clearTimeout(this.#retire);
    this.#released = false;
    return this;
  }

  async run(job: DiffJob): Promise<{ answer: DiffAnswer; ms: number }> {
    this.#pending++;
    try {
      return await computing.run(() => this.#do(job));
    } finally {
      this.#pending--;
    }
  }

  async #do(job: DiffJob): Promise<{ answer: DiffAnswer; ms: number }> {
    if (this.#released) throw new CayError('cancelled', 'The comparison was given up');
    if (this.#failure) throw this.#failure;
    const timer = setTimeout(() => this.#fail(`took longer than ${JOB_MS} ms for one file`), JOB_MS);
    const startedAt = performance.now();
    try {
      const answer = await new Promise<DiffAnswer>((resolve, reject) => {
        this.#job = { resolve, reject };
        this.#worker.ref();
        this.#worker.postMessage(job, transferable(job));
      });
      return { answer, ms: performance.now() - startedAt };
    } finally {
      this.#worker.unref();
      clearTimeout(timer);
      this.#job = undefined;
    }
  }

  release(): void {
    if (this.#released) return;
    this.#released = true;
    if (this.#pending > 0 || this.#failure || idle.length >= IDLE_MOST) return this.#fail('was given up');
    idle.push(this);
    this.#retire = setTimeout(() => {
      idle.splice(idle.indexOf(this), 1);
      this.#fail('was given up');
    }, IDLE_MS).unref();
  }

  #fail(how: string, cause?: unknown): void {
    if (this.#failure) return;
    const memory = (cause as NodeJS.ErrnoException | undefined)?.code === 'ERR_WORKER_OUT_OF_MEMORY';
    const code = how === 'was given up' ? 'cancelled' : 'resource_exhausted';
    this.#failure = new CayError(
      code,
      `Cannot compare files: the comparison ${memory ? 'took too much memory' : how}`,
      { cause },
    );
    this.#job?.reject(this.#failure);
    const place = idle.indexOf(this);
    if (place !== -1) idle.splice(place, 1);
    void this.#worker.terminate().catch(() => {});
  }
}

/** What is in memory of its own is handed over, not copied. */
function transferable({ contents }: DiffJob): ArrayBuffer[] {
  if (contents === undefined || contents === 'large') return [];
  const buffers = [contents.before, contents.after]
    .filter(({ byteLength }) => byteLength > Buffer.poolSize)
    .map(({ buffer }) => buffer);
  return [...new Set(buffers)] as ArrayBuffer[];
}
