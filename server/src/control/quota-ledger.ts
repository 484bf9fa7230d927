import type { Limits } from '@cay/sdk/protocol';
import { requireQuota } from './quota.ts';
import type { ProjectRecords } from './records/projects.ts';
import type { SandboxRecords, SandboxRow, Usage } from './records/sandboxes.ts';

type Counted = Pick<Limits, 'cpus' | 'memoryBytes' | 'diskBytes'>;

/** What projects take of their quotas: what is recorded, and what is about to be. */
export interface QuotaLedger {
  usage(project: string): Usage;
  /** The same of memory and disk, of all projects together. */
  promised(): Pick<Usage, 'memoryBytes' | 'diskBytes'>;
  /** Refuses `resource_exhausted` what would go beyond the quota. `without` is what is counted already and will be no more. */
  require(project: string, wanted: { sandboxes: number; limits: Counted }, without?: Counted): void;
  /** Counts what a deed takes from before it begins; once it is done the records do. */
  reserving<T>(row: Pick<SandboxRow, 'project'>, limits: Counted, deed: () => Promise<T>): Promise<T>;
}

const COUNTED = ['cpus', 'memoryBytes', 'diskBytes'] as const;

export function quotaLedger(sandboxes: SandboxRecords, projects: ProjectRecords): QuotaLedger {
  const reserved = new Set<{ project: string; limits: Counted }>();
  const ledger: QuotaLedger = {
    usage(project) {
      const usage = sandboxes.usage(project);
      for (const one of reserved) {
        if (one.project !== project) continue;
        for (const key of COUNTED) usage[key] += one.limits[key] ?? 0;
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
      const quota = projects.get(project)?.quota;
      if (!quota) return;
      const usage = ledger.usage(project);
      for (const key of COUNTED) usage[key] -= without?.[key] ?? 0;
      requireQuota(quota, usage, wanted);
    },
    async reserving(row, limits, deed) {
      const reservation = { project: row.project, limits };
      reserved.add(reservation);
      try {
        return await deed();
      } finally {
        reserved.delete(reservation);
      }
    },
  };
  return ledger;
}
