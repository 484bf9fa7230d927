/**
 * The warm pool keeps instances running before they are asked for, so that the next one asked
 * for is ready at once.
 *
 * What can be changed while an instance runs (limits, labels, env, user) is not part of the key;
 * what cannot (template, runtime, a read-only root) is. An instance leaves the pool in
 * the same turn of the event loop in which it is found, so none is ever handed out twice. Filling
 * happens one at a time, when requests have been quiet for a moment, and only while no caller waits for
 * a sandbox of their own.
 */
import { setTimeout as sleep } from 'node:timers/promises';
import type { Instance, InstanceFacts } from '../../host/instances/instance.ts';

export interface PoolKey {
  template: string;
  /** The committed tree behind the template: another tree, another key. */
  templateTree: string;
  runtime: string;
}

export interface PoolOptions {
  size: number;
  /** Makes one more, ready to use. */
  make(): Promise<{ instance: Instance; key: PoolKey }>;
  destroy(instance: Instance): Promise<void>;
  /** True while a caller waits for a sandbox that is made from nothing. */
  busy(): boolean;
  onError(error: unknown): void;
}

const RETRY_MS = 5_000;
const BUSY_POLL_MS = 20;
/** Starting an instance takes a whole core for a while: not in the middle of a burst of requests. */
const QUIET_MS = 250;

export class Pool {
  readonly #options: PoolOptions;
  #ready: { instance: Instance; key: PoolKey }[] = [];
  #filling: Promise<void> | undefined;
  #timer: NodeJS.Timeout | undefined;
  readonly #discarding = new Set<Promise<void>>();
  #closed = false;
  #takenAtMs = Number.NEGATIVE_INFINITY;

  constructor(options: PoolOptions) {
    this.#options = options;
  }

  get size(): number {
    return this.#ready.length;
  }

  /** Instances that wait here, for a reckoning of what is whose. */
  names(): string[] {
    return this.#ready.map(({ instance }) => instance.facts.name);
  }

  /** Puts in an instance that an earlier server left behind. */
  add(instance: Instance, key: PoolKey): void {
    this.#ready.push({ instance, key });
  }

  /** Hands one out, or nothing. Entries that died or belong to an older template go away. */
  take(key: PoolKey): Instance | undefined {
    const stale = this.#ready.filter((entry) => !entry.instance.link.current || isOutdated(entry.key, key));
    if (stale.length > 0) {
      this.#ready = this.#ready.filter((entry) => !stale.includes(entry));
      for (const { instance } of stale) this.#discard(instance);
    }
    const index = this.#ready.findIndex((entry) => sameKey(entry.key, key));
    this.#takenAtMs = performance.now();
    const found = index < 0 ? undefined : this.#ready.splice(index, 1)[0]?.instance;
    this.fill();
    return found;
  }

  /** Starts filling in the background, if there is anything to fill. */
  fill(): void {
    if (this.#closed || this.#filling || this.#timer || this.#ready.length >= this.#options.size) return;
    if (this.#options.busy()) return this.#later(BUSY_POLL_MS);
    const quietInMs = this.#takenAtMs + QUIET_MS - performance.now();
    if (quietInMs > 0 && this.#ready.length > 0) return this.#later(quietInMs);
    this.#filling = this.#one().then(
      () => {
        this.#filling = undefined;
        this.#later(0);
      },
      (error: unknown) => {
        this.#filling = undefined;
        this.#options.onError(error);
        this.#later(RETRY_MS);
      },
    );
  }

  /** Resolves when the pool is full, for those who start measuring or serving. */
  async full(): Promise<void> {
    while (!this.#closed && this.#ready.length < this.#options.size) {
      this.fill();
      await (this.#filling ?? sleep(BUSY_POLL_MS));
    }
  }

  /** Stops filling and gives back what waits; the caller decides what becomes of it. */
  async close(): Promise<Instance[]> {
    this.#closed = true;
    clearTimeout(this.#timer);
    await this.#filling;
    await Promise.all(this.#discarding);
    const left = this.#ready.map(({ instance }) => instance);
    this.#ready = [];
    return left;
  }

  async #one(): Promise<void> {
    const { instance, key } = await this.#options.make();
    if (this.#closed) await this.#options.destroy(instance);
    else this.#ready.push({ instance, key });
  }

  #discard(instance: Instance): void {
    const discarding = this.#options
      .destroy(instance)
      .catch(this.#options.onError)
      .finally(() => this.#discarding.delete(discarding));
    this.#discarding.add(discarding);
  }

  #later(ms: number): void {
    if (this.#closed || this.#timer) return;
    this.#timer = setTimeout(() => {
      this.#timer = undefined;
      this.fill();
    }, ms);
    this.#timer.unref();
  }
}

function sameKey(a: PoolKey, b: PoolKey): boolean {
  return a.template === b.template && a.templateTree === b.templateTree && a.runtime === b.runtime;
}

function isOutdated(entry: PoolKey, wanted: PoolKey): boolean {
  // Under a runtime with other ids the same template is another tree, and neither is the older one.
  return (
    entry.template === wanted.template &&
    entry.runtime === wanted.runtime &&
    entry.templateTree !== wanted.templateTree
  );
}

export function poolKeyOf(facts: InstanceFacts): PoolKey {
  return { template: facts.template, templateTree: facts.templateTree, runtime: facts.runtime };
}
