import type { Quota } from '@cay/sdk/protocol';
import type { Records } from '../../records/records.ts';
import type { Usage } from '../../records/tables/sandbox-row.ts';
import type { Tables } from '../../records/tables/tables.ts';
import type { Projects } from './projects.ts';
import { SUMMED, requireQuota, requireRoom, type Summed, type Used } from './quota.ts';
import type { Reservation, Reservations } from './reservations.ts';

/**
 * What projects take of their quotas: what is recorded, and what is being written.
 *
 * `on` is the records, or the transaction that inserts what is asked for. Only in that transaction no other
 * insert comes between the check and the insert, of this server or of another one. What is being written is
 * known to this server alone.
 */
export interface QuotaLedger {
  /**
   * Rejects `resource_exhausted` for limits beyond the quota. `replaced` are limits that are counted now and
   * will not be after the change.
   */
  require(
    on: Tables,
    project: string,
    wanted: { sandboxes: number; limits: Summed },
    replaced?: Summed,
  ): Promise<void>;
  /**
   * Counts `added` while the operation runs; once it is done the records count them. Rejects as `require`
   * does, for `limits` in place of `replaced`. Of two calls that compete, the earlier one is admitted.
   */
  reserving<T>(
    project: string,
    change: { added: Summed; limits?: Summed; replaced?: Summed },
    operation: (reserved: Reservation) => Promise<T>,
  ): Promise<T>;
  /** What a project's sandboxes may take at most, those that are about to start included. */
  usage(on: Tables, project: string): Promise<Usage>;
  /** Registers a source: `of` resolves how much of a quota a project takes under this name. */
  counts(key: keyof Quota, name: string, of: (project: string, on: Tables) => number | Promise<number>): void;
  used(on: Tables, project: string, key: keyof Quota): Promise<Used>;
  /** What the project may have of it; null without a limit. */
  limit(on: Tables, project: string, key: keyof Quota): Promise<number | null>;
  /**
   * Rejects `resource_exhausted` for an amount beyond one quota, with what has taken the rest. `without` is a
   * write that does not count, because the amount is what came of it.
   */
  requireRoom(
    on: Tables,
    project: string,
    key: keyof Quota,
    asked: number,
    options?: { without?: Flight },
  ): Promise<void>;
  /**
   * Counts bytes that are being written until the result is disposed of. From then on the records count them.
   */
  begin(project: string, name: string, keys: readonly (keyof Quota)[]): Flight;
}

/** A write that is under way. */
export interface Flight extends Disposable {
  readonly bytes: number;
  /** Rejects `resource_exhausted` beyond a quota, or if the disk would have less than its reserve. */
  add(bytes: number): Promise<void>;
}

export interface QuotaLedgerOptions {
  records: Records;
  reservations: Reservations;
  projects: Pick<Projects, 'get'>;
  /** Throws `resource_exhausted` for bytes that the disk has no room for. */
  write(bytes: number): void;
}

/** How much may be written before the records are summed up again. */
const SUM_EVERY_BYTES = 4 * 1024 * 1024;

interface Writing extends Flight {
  readonly project: string;
  readonly name: string;
  readonly keys: readonly (keyof Quota)[];
}

export function quotaLedger({ records, reservations, projects, write }: QuotaLedgerOptions): QuotaLedger {
  const flights = new Set<Flight>();
  const sources = new Map<
    keyof Quota,
    Map<string, (project: string, on: Tables) => number | Promise<number>>
  >();
  /** How many flights have ended: what they wrote may be in the records or not, when those were read. */
  let ended = 0;

  async function recorded(on: Tables, project: string, key: keyof Quota): Promise<Record<string, number>> {
    for (;;) {
      const before = ended;
      const by: Record<string, number> = {};
      for (const [name, of] of sources.get(key) ?? []) by[name] = await of(project, on);
      if (ended === before) return by;
    }
  }

  function withFlights(
    project: string,
    key: keyof Quota,
    recordedBy: Record<string, number>,
    without?: Flight,
  ): Used {
    const by = { ...recordedBy };
    for (const flight of flights as Set<Writing>) {
      if (flight !== without && flight.project === project && flight.keys.includes(key))
        by[flight.name] = (by[flight.name] ?? 0) + flight.bytes;
    }
    return { used: Object.values(by).reduce((sum, some) => sum + some, 0), by };
  }

  const quotaOf = async (on: Tables, project: string) => (await projects.get(on, project))?.effectiveQuota;

  async function requireLimits(
    on: Tables,
    project: string,
    wanted: { sandboxes: number; limits: Summed },
    replaced: Summed | undefined,
    before?: Reservation,
  ): Promise<void> {
    const quota = await quotaOf(on, project);
    if (!quota) return;
    const usage = await reservations.usage(on, project, before);
    for (const key of SUMMED) usage[key] -= replaced?.[key] ?? 0;
    requireQuota(quota, usage, wanted);
  }

  return {
    require: requireLimits,
    usage: (on, project) => reservations.usage(on, project),
    async reserving(project, { added, limits = added, replaced }, operation) {
      // Reserved before the records are read, so that of two calls one sees the other.
      using reservation = reservations.reserve(project, added);
      await requireLimits(records, project, { sandboxes: 0, limits }, replaced, reservation);
      return await operation(reservation);
    },
    counts(key, name, of) {
      if (!sources.has(key)) sources.set(key, new Map());
      sources.get(key)!.set(name, of);
    },
    used: async (on, project, key) => withFlights(project, key, await recorded(on, project, key)),
    limit: async (on, project, key) => (await quotaOf(on, project))?.[key] ?? null,
    async requireRoom(on, project, key, asked, { without } = {}) {
      const quota = await quotaOf(on, project);
      if (!quota || quota[key] === null) return;
      const by = await recorded(on, project, key);
      requireRoom(quota, key, withFlights(project, key, by, without), asked);
    },
    begin(project, name, keys) {
      const known = new Map<keyof Quota, Record<string, number>>();
      let quota: Quota | undefined;
      let bytes = 0;
      let summedAt = Number.NEGATIVE_INFINITY;
      const flight: Writing = {
        project,
        name,
        keys,
        get bytes() {
          return bytes;
        },
        async add(more) {
          if (bytes + more - summedAt >= SUM_EVERY_BYTES) {
            summedAt = bytes + more;
            if (keys.length > 0) quota = await quotaOf(records, project);
            for (const key of keys)
              if (quota && quota[key] !== null) known.set(key, await recorded(records, project, key));
          }
          // From here on nothing is awaited: what others add meanwhile is seen, or sees this.
          for (const [key, by] of known) requireRoom(quota!, key, withFlights(project, key, by), more);
          write(more);
          bytes += more;
        },
        [Symbol.dispose]() {
          if (flights.delete(flight)) ended++;
        },
      };
      flights.add(flight);
      return flight;
    },
  };
}
