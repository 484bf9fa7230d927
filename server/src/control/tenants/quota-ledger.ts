import type { Quota } from '@cay/sdk/protocol';
import type { ProjectRecords } from '../../records/projects.ts';
import { SUMMED, requireQuota, requireRoom, type Summed, type Used } from './quota.ts';
import type { Reservations } from './reservations.ts';

/** What projects take of their quotas: what is recorded, and what is being written. */
export interface QuotaLedger extends Reservations {
  /**
   * Throws `resource_exhausted` for limits beyond the quota. `replaced` are limits that are counted now and
   * will not be after the change.
   */
  require(project: string, wanted: { sandboxes: number; limits: Summed }, replaced?: Summed): void;
  /** Registers a source: `of` returns how much of a quota a project takes under this name. */
  counts(key: keyof Quota, name: string, of: (project: string) => number): void;
  used(project: string, key: keyof Quota): Used;
  /** What the project may have of it; null without a limit. */
  limit(project: string, key: keyof Quota): number | null;
  /** Throws `resource_exhausted` for an amount beyond one quota, with what has taken the rest. */
  requireRoom(project: string, key: keyof Quota, asked: number): void;
  /**
   * Counts bytes that are being written until the result is disposed of. From then on the records count them.
   */
  begin(project: string, name: string, keys: readonly (keyof Quota)[]): Flight;
}

/** A write that is under way. */
export interface Flight extends Disposable {
  readonly bytes: number;
  /** Throws `resource_exhausted` beyond a quota, or if the disk would have less than its reserve. */
  add(bytes: number): void;
}

export interface QuotaLedgerOptions {
  reservations: Reservations;
  projects: ProjectRecords;
  /** Throws `resource_exhausted` for bytes that the disk has no room for. */
  write(bytes: number): void;
}

/** How much may be written before the records are summed up again. */
const SUM_EVERY_BYTES = 4 * 1024 * 1024;

export function quotaLedger({ reservations, projects, write }: QuotaLedgerOptions): QuotaLedger {
  const flights = new Set<{ project: string; name: string; keys: readonly (keyof Quota)[]; bytes: number }>();
  const sources = new Map<keyof Quota, Map<string, (project: string) => number>>();

  function recorded(project: string, key: keyof Quota): Record<string, number> {
    const by: Record<string, number> = {};
    for (const [name, of] of sources.get(key) ?? []) by[name] = of(project);
    return by;
  }

  function withFlights(project: string, key: keyof Quota, recordedBy: Record<string, number>): Used {
    const by = { ...recordedBy };
    for (const flight of flights) {
      if (flight.project === project && flight.keys.includes(key))
        by[flight.name] = (by[flight.name] ?? 0) + flight.bytes;
    }
    return { used: Object.values(by).reduce((sum, some) => sum + some, 0), by };
  }

  const quotaOf = (project: string) => projects.get(project)?.effectiveQuota;

  const ledger: QuotaLedger = {
    ...reservations,
    require(project, wanted, replaced) {
      const quota = quotaOf(project);
      if (!quota) return;
      const usage = reservations.usage(project);
      for (const key of SUMMED) usage[key] -= replaced?.[key] ?? 0;
      requireQuota(quota, usage, wanted);
    },
    counts(key, name, of) {
      if (!sources.has(key)) sources.set(key, new Map());
      sources.get(key)!.set(name, of);
    },
    used: (project, key) => withFlights(project, key, recorded(project, key)),
    limit: (project, key) => quotaOf(project)?.[key] ?? null,
    requireRoom(project, key, asked) {
      const quota = quotaOf(project);
      if (quota && quota[key] !== null) requireRoom(quota, key, ledger.used(project, key), asked);
    },
    begin(project, name, keys) {
      const flight = { project, name, keys, bytes: 0 };
      const known = new Map<keyof Quota, Record<string, number>>();
      const quota = quotaOf(project);
      let summedAt = Number.NEGATIVE_INFINITY;
      flights.add(flight);
      return {
        get bytes() {
          return flight.bytes;
        },
        add(bytes) {
          if (flight.bytes + bytes - summedAt >= SUM_EVERY_BYTES) {
            for (const key of keys) if (quota && quota[key] !== null) known.set(key, recorded(project, key));
            summedAt = flight.bytes + bytes;
          }
          for (const [key, by] of known) requireRoom(quota!, key, withFlights(project, key, by), bytes);
          write(bytes);
          flight.bytes += bytes;
        },
        [Symbol.dispose]: () => void flights.delete(flight),
      };
    },
  };
  return ledger;
}
