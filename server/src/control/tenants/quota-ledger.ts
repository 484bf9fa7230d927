import type { Quota } from '@cay/sdk/protocol';
import { SUMMED, requireQuota, requireRoom, type Summed, type Used } from './quota.ts';
import type { ProjectRecords } from '../../records/projects.ts';
import type { SandboxRecords, SandboxRow, Usage } from '../../records/sandboxes.ts';

/** What projects take of their quotas: what is recorded, and what is about to be. */
export interface QuotaLedger {
  usage(project: string): Usage;
  /** The same of memory and disk, of all projects together. */
  promised(): Pick<Usage, 'memoryBytes' | 'diskBytes'>;
  /**
   * Refuses `resource_exhausted` what would go beyond the quota. `without` is what is counted already and
   * will be no more.
   */
  require(project: string, wanted: { sandboxes: number; limits: Summed }, without?: Summed): void;
  /** Counts what a operation takes from before it begins; once it is done the records do. */
  reserving<T>(row: Pick<SandboxRow, 'project'>, limits: Summed, operation: () => Promise<T>): Promise<T>;
  /** Has `of` tell how much of a quota a project takes by this name. */
  counts(key: keyof Quota, name: string, of: (project: string) => number): void;
  used(project: string, key: keyof Quota): Used;
  /** What the project may have of it; null without a limit. */
  limit(project: string, key: keyof Quota): number | null;
  /** Refuses `resource_exhausted` what would go beyond one quota, and tells what has taken it. */
  requireRoom(project: string, key: keyof Quota, asked: number): void;
  /**
   * Counts bytes of something that is being written until it is disposed of: the records count what has come
   * of it.
   */
  begin(project: string, name: string, keys: readonly (keyof Quota)[]): Flight;
}

/** Something that is being written. */
export interface Flight extends Disposable {
  readonly bytes: number;
  /** Refuses `resource_exhausted` more than a quota allows, or than the disk has beyond its reserve. */
  add(bytes: number): void;
}

export interface QuotaLedgerOptions {
  sandboxes: SandboxRecords;
  projects: ProjectRecords;
  /** Refuses bytes that the disk has no room for. */
  write?(bytes: number): void;
}

/** How much may be written before the records are summed up again. */
const LOOK_EVERY_BYTES = 4 * 1024 * 1024;

export function quotaLedger({ sandboxes, projects, write = () => {} }: QuotaLedgerOptions): QuotaLedger {
  const reserved = new Set<{ project: string; limits: Summed }>();
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
    usage(project) {
      const usage = sandboxes.usage(project);
      for (const one of reserved) {
        if (one.project !== project) continue;
        for (const key of SUMMED) usage[key] += one.limits[key] ?? 0;
      }
      return usage;
    },
    promised() {
      const { memoryBytes, diskBytes } = sandboxes.promised();
      const sum = { memoryBytes, diskBytes };
      for (const { limits } of reserved) {
        sum.memoryBytes += limits.memoryBytes ?? 0;
        sum.diskBytes += limits.diskBytes ?? 0;
      }
      return sum;
    },
    require(project, wanted, without) {
      const quota = quotaOf(project);
      if (!quota) return;
      const usage = ledger.usage(project);
      for (const key of SUMMED) usage[key] -= without?.[key] ?? 0;
      requireQuota(quota, usage, wanted);
    },
    async reserving(row, limits, operation) {
      const reservation = { project: row.project, limits };
      reserved.add(reservation);
      try {
        return await operation();
      } finally {
        reserved.delete(reservation);
      }
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
      let lookedAt = Number.NEGATIVE_INFINITY;
      flights.add(flight);
      return {
        get bytes() {
          return flight.bytes;
        },
        add(bytes) {
          if (flight.bytes + bytes - lookedAt >= LOOK_EVERY_BYTES) {
            for (const key of keys) if (quota && quota[key] !== null) known.set(key, recorded(project, key));
            lookedAt = flight.bytes + bytes;
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
