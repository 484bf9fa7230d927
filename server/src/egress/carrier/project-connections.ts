/**
 * What the carried connections of one project take of the server: how many are open, and how many bytes the
 * server holds for them. A guest decides how many connections it opens and how fast it reads, so both are
 * bounded for all sandboxes of a project together.
 *
 * Bytes are estimated as they arrive, and an estimate is never too low: what arrives is added at once, and
 * what has left is noticed when a connection is weighed. Before anything is refused all connections are
 * weighed.
 */
import { Denial } from './denial.ts';

export interface CarryLimits {
  /** Connections that are open at once. Null means any number. */
  readonly connections: number | null;
  /** Bytes that are held for them. Null means any number. */
  readonly bytes: number | null;
}

/** A connection that holds bytes. */
export interface Weighed {
  /** How many it holds now. */
  weigh(): number;
  cut(denial: Denial): void;
}

/** Adds up to the bytes that a stream with a wide window may hold. */
const WIDE_BYTES = 1024 * 1024;
/** The share of the bytes that wide windows may reserve. */
const WIDE_SHARE = 0.5;
/** Weighing all takes time, so a project at its limit is not weighed for each frame that arrives. */
const WEIGH_EVERY_MS = 50;

export class ProjectConnections {
  limits: CarryLimits;
  /** Connections that were refused or cut because of these limits. */
  refused = 0;
  readonly #open = new Map<Weighed, number>();
  readonly #wide = new Set<Weighed>();
  readonly #steady: () => number;
  #bytes = 0;
  #weighedAt = -Infinity;

  constructor(limits: CarryLimits, steady: () => number) {
    this.limits = limits;
    this.#steady = steady;
  }

  get connections(): number {
    return this.#open.size;
  }

  get bytes(): number {
    return this.#bytes;
  }

  /** Counts a connection, or throws a `Denial`. */
  open(connection: Weighed): void {
    const { connections: most } = this.limits;
    if (most !== null && this.#open.size >= most)
      throw this.#exceeded(`The project has ${this.#open.size} connections open, the most is ${most}`);
    this.#open.set(connection, 0);
    try {
      this.add(connection, connection.weigh());
    } catch (error) {
      this.close(connection);
      throw error;
    }
  }

  close(connection: Weighed): void {
    this.#bytes -= this.#open.get(connection) ?? 0;
    this.#open.delete(connection);
    this.#wide.delete(connection);
  }

  /** Counts bytes that have arrived for a connection, or throws a `Denial`. */
  add(connection: Weighed, bytes: number): void {
    const known = this.#open.get(connection);
    if (known === undefined) return;
    this.#open.set(connection, known + bytes);
    this.#bytes += bytes;
    const { bytes: most } = this.limits;
    if (most === null || this.#bytes <= most) return;
    if (this.#steady() - this.#weighedAt >= WEIGH_EVERY_MS) this.#weighAll();
    else this.weigh(connection);
    if (this.#bytes > most) throw this.#tooManyBytes(most);
  }

  /** Corrects the estimate of one connection. */
  weigh(connection: Weighed): void {
    const known = this.#open.get(connection);
    if (known === undefined) return;
    const bytes = connection.weigh();
    this.#open.set(connection, bytes);
    this.#bytes += bytes - known;
  }

  /** Whether a connection that carries much may have a wide window. */
  mayWiden(connection: Weighed): boolean {
    const { bytes: most } = this.limits;
    if (most !== null && (this.#wide.size + 1) * WIDE_BYTES > most * WIDE_SHARE) return false;
    this.#wide.add(connection);
    return true;
  }

  /** Corrects all estimates, and cuts what is beyond the limits, those that hold most first. */
  tick(): void {
    if (this.#open.size === 0) return;
    this.#weighAll();
    const { bytes: most } = this.limits;
    if (most === null || this.#bytes <= most) return;
    const heaviest = [...this.#open].toSorted(([, one], [, other]) => other - one);
    for (const [connection] of heaviest) {
      if (this.#bytes <= most) return;
      const denial = this.#tooManyBytes(most);
      this.close(connection);
      connection.cut(denial);
    }
  }

  #weighAll(): void {
    this.#weighedAt = this.#steady();
    for (const connection of this.#open.keys()) this.weigh(connection);
  }

  #tooManyBytes(most: number): Denial {
    return this.#exceeded(
      `The server holds more than ${most} bytes for the connections of this project, which is the most`,
    );
  }

  #exceeded(message: string): Denial {
    this.refused++;
    return new Denial('limit', message);
  }
}
