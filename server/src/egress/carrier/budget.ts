/**
 * What a sandbox, or a rule in a sandbox, has used of its limits. A `Meter` is what one connection uses of
 * all budgets that it falls under.
 */
import type { EgressLimits } from '@cay/sdk/protocol';
import type { Clock } from '../../lib/clock.ts';
import { Denial } from './denial.ts';

export type Direction = 'out' | 'in';

const MINUTE = 60_000;

export class Budget {
  limits: EgressLimits;
  connections = 0;
  readonly bytes = { out: 0, in: 0 };
  readonly #what: string;
  readonly #clock: Clock;
  readonly #opened: Window;
  readonly #requests: Window;
  /** When each direction may carry more, by the steady clock. */
  readonly #free = { out: 0, in: 0 };

  constructor(what: string, limits: EgressLimits, clock: Clock) {
    this.#what = what;
    this.limits = limits;
    this.#clock = clock;
    this.#opened = new Window(clock);
    this.#requests = new Window(clock);
  }

  /** Counts a connection, or throws a `Denial`. */
  open(): void {
    const { connections, connectionsPerMinute } = this.limits;
    if (connections !== undefined && this.connections >= connections)
      throw this.#exceeded(`${connections} connections at a time`);
    if (!this.#opened.add(1, connectionsPerMinute))
      throw this.#exceeded(`${connectionsPerMinute} connections in a minute`);
    for (const direction of ['out', 'in'] as const) this.#checkTotal(direction);
    this.connections++;
  }

  close(): void {
    this.connections--;
  }

  request(): void {
    if (!this.#requests.add(1, this.limits.requestsPerMinute))
      throw this.#exceeded(`${this.limits.requestsPerMinute} requests in a minute`);
  }

  /** Counts bytes, and answers for how many milliseconds no more should be carried. */
  spend(direction: Direction, count: number): number {
    this.bytes[direction] += count;
    this.#checkTotal(direction);
    const rate = this.limits.bytesPerSecond;
    if (rate === undefined) return 0;
    const now = this.#clock.steady();
    // A tenth of a second may come at once, so that small messages never wait.
    this.#free[direction] = Math.max(this.#free[direction], now - 100) + (1000 * count) / rate;
    return Math.max(0, this.#free[direction] - now);
  }

  #checkTotal(direction: Direction): void {
    const most = direction === 'out' ? this.limits.bytesOut : this.limits.bytesIn;
    if (most !== undefined && this.bytes[direction] > most)
      throw this.#exceeded(`${most} bytes ${direction === 'out' ? 'sent' : 'received'}`);
  }

  #exceeded(limit: string): Denial {
    return new Denial('limit', `${this.#what} is at its limit of ${limit}`);
  }
}

/** How much came within the last minute, roughly: the present minute and a share of the one before. */
export class Window {
  readonly #clock: Clock;
  #start = 0;
  #now = 0;
  #before = 0;
  constructor(clock: Clock) {
    this.#clock = clock;
  }

  /** Counts it unless it would be more than `most`. */
  add(count: number, most: number | undefined): boolean {
    const now = this.#clock.steady();
    if (now - this.#start >= MINUTE) {
      this.#before = now - this.#start >= 2 * MINUTE ? 0 : this.#now;
      this.#now = 0;
      this.#start = now - ((now - this.#start) % MINUTE);
    }
    const used = this.#now + this.#before * (1 - (now - this.#start) / MINUTE);
    if (most !== undefined && used + count > most) return false;
    this.#now += count;
    return true;
  }
}

export class Meter {
  /** What this connection has carried. */
  readonly bytes: { out: number; in: number };
  readonly #budgets: readonly Budget[];
  #open = false;

  constructor(budgets: readonly Budget[], bytes = { out: 0, in: 0 }) {
    this.#budgets = budgets;
    this.bytes = bytes;
  }

  open(): void {
    const opened: Budget[] = [];
    try {
      for (const budget of this.#budgets) {
        budget.open();
        opened.push(budget);
      }
      this.#open = true;
    } catch (error) {
      for (const budget of opened) budget.close();
      throw error;
    }
  }

  close(): void {
    if (!this.#open) return;
    this.#open = false;
    for (const budget of this.#budgets) budget.close();
  }

  spend(direction: Direction, count: number): number {
    this.bytes[direction] += count;
    let wait = 0;
    for (const budget of this.#budgets) wait = Math.max(wait, budget.spend(direction, count));
    return wait;
  }
}
