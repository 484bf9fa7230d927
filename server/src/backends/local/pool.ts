/**
 * The warm pool keeps instances running before they are asked for, so that the next one asked
 * for is ready at once.
 *
 * What can be changed while an instance runs (limits, labels, env, user) is not part of the key;
 * what cannot (template, runtime, a read-only root) is. An instance leaves the pool in
 * the same turn of the event loop in which it is found, so none is ever handed out twice. Filling
 * happens one at a time, when requests have been quiet for a moment, and only while no caller waits for
 * a sandbox of their own.
 *
 * A pool that is empty, because one caller after the other takes from it, fills with several at once, and a
 * caller gets the next of them as soon as it runs: that is ready before one that would be begun now.
 */
import { setTimeout as sleep } from 'node:timers/promises';
import type { Instance, InstanceFacts } from '../../host/instances/instance.ts';

export interface PoolKey {
  template: string;
  /** The committed tree of the template. It changes with the content of the template. */
  templateTree: string;
  runtime: string;
}

export interface PoolOptions {
  size: number;
  /** How many are made at once while the pool is empty and in use. */
  atOnce: number;
  /** Makes one more, ready to use. `isAwaited` says whether a caller waits for it already. */
  make(isAwaited: () => boolean): Promise<{ instance: Instance; key: PoolKey }>;
  destroy(instance: Instance): Promise<void>;
  /** True while a caller waits for a sandbox that is made from nothing. */
  busy(): boolean;
  onError(error: unknown): void;
}

const RETRY_MS = 5_000;
const BUSY_POLL_MS = 20;
/** Starting an instance takes a whole core for a while: not in the middle of a burst of requests. */
const QUIET_MS = 250;
/** A pool that was taken from within this time is in use. */
const IN_USE_MS = 2_000;

/** An instance that is being made. */
interface Making {
  done: Promise<void>;
  /** Called for the caller that waits: with the instance, or with nothing if it has to make one itself. */
  waiter?: (instance?: Instance) => void;
}

export class Pool {
  readonly #options: PoolOptions;
  #ready: { instance: Instance; key: PoolKey }[] = [];
  readonly #making: Making[] = [];
  /** The key of the instance that was made last. Those that are being made most likely have the same key. */
  #lastKey: PoolKey | undefined;
  #failed = false;
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

  /** Names of the instances in the pool. The sweep spares them. */
  names(): string[] {
    return this.#ready.map(({ instance }) => instance.facts.name);
  }

  /** Puts in an instance that an earlier server left behind. */
  add(instance: Instance, key: PoolKey): void {
    this.#ready.push({ instance, key });
  }

  /**
   * Takes an instance out. Undefined if there is none. Removes instances that died or belong to an older
   * template.
   */
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

  /**
   * Waits for an instance that is being made and that no other caller waits for. Undefined if there is none,
   * or if it could not be made. Call it after a `take` that found none. `claim` is called in the turn of the
   * event loop in which the instance leaves the pool.
   */
  async next(key: PoolKey, claim: (instance: Instance) => void): Promise<Instance | undefined> {
    const coming = this.#making.find(({ waiter }) => waiter === undefined);
    if (this.#closed || !coming || !this.#lastKey || !sameKey(this.#lastKey, key)) return undefined;
    const { promise, resolve } = Promise.withResolvers<Instance | undefined>();
    coming.waiter = (instance) => {
      this.#takenAtMs = performance.now();
      if (instance) claim(instance);
      resolve(instance);
    };
    this.fill();
    return promise;
  }

  /** Starts filling in the background, if there is anything to fill. */
  fill(): void {
    while (this.#mayMake()) this.#make();
  }

  #mayMake(): boolean {
    if (this.#closed || this.#failed || this.#timer) return false;
    const promised = this.#making.filter(({ waiter }) => waiter).length;
    if (this.#ready.length + this.#making.length - promised >= this.#options.size) return false;
    const takenForMs = performance.now() - this.#takenAtMs;
    const atOnce = this.#ready.length === 0 && takenForMs < IN_USE_MS ? this.#options.atOnce : 1;
    if (this.#making.length >= atOnce) return false;
    if (this.#options.busy()) {
      this.#later(BUSY_POLL_MS);
      return false;
    }
    if (takenForMs < QUIET_MS && this.#ready.length > 0) {
      this.#later(QUIET_MS - takenForMs);
      return false;
    }
    return true;
  }

  #make(): void {
    const making: Making = { done: Promise.resolve() };
    this.#making.push(making);
    making.done = this.#one(making).then(
      () => {
        this.#leave(making);
        this.#later(0);
      },
      (error: unknown) => {
        this.#leave(making);
        making.waiter?.();
        this.#options.onError(error);
        this.#failed = true;
        this.#later(RETRY_MS);
      },
    );
  }

  #leave(making: Making): void {
    this.#making.splice(this.#making.indexOf(making), 1);
  }

  /** Resolves when the pool is full, for those who start measuring or serving. */
  async full(): Promise<void> {
    while (!this.#closed && this.#ready.length < this.#options.size) {
      this.fill();
      await (this.#making[0]?.done ?? sleep(BUSY_POLL_MS));
    }
  }

  /** Stops filling and gives back what waits; the caller decides what becomes of it. */
  async close(): Promise<Instance[]> {
    this.#closed = true;
    clearTimeout(this.#timer);
    await Promise.all(this.#making.map(({ done }) => done));
    await Promise.all(this.#discarding);
    const left = this.#ready.map(({ instance }) => instance);
    this.#ready = [];
    return left;
  }

  async #one(making: Making): Promise<void> {
    const expected = this.#lastKey;
    const { instance, key } = await this.#options.make(() => making.waiter !== undefined);
    this.#lastKey = key;
    const fits = expected !== undefined && sameKey(expected, key);
    if (making.waiter && fits && !this.#closed) return making.waiter(instance);
    if (this.#closed) await this.#options.destroy(instance);
    else this.#ready.push({ instance, key });
    making.waiter?.();
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
      this.#failed = false;
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
