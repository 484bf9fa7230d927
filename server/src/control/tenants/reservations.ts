/** The limits of all sandboxes: those that are recorded, and those of starts that are not recorded yet. */
import type { SandboxRecords, SandboxRow, Usage } from '../../records/sandboxes.ts';
import { SUMMED, type Summed } from './quota.ts';

export interface Reservations {
  /** What a project's sandboxes may take at most. */
  usage(project: string): Usage;
  /** Memory and disk of all projects together. */
  promised(): Pick<Usage, 'memoryBytes' | 'diskBytes'>;
  /** Counts limits while the operation runs; once it is done the records count them. */
  reserving<T>(row: Pick<SandboxRow, 'project'>, limits: Summed, operation: () => Promise<T>): Promise<T>;
}

export function openReservations(sandboxes: Pick<SandboxRecords, 'usage' | 'promised'>): Reservations {
  const reserved = new Set<{ project: string; limits: Summed }>();
  return {
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
    async reserving({ project }, limits, operation) {
      const reservation = { project, limits };
      reserved.add(reservation);
      try {
        return await operation();
      } finally {
        reserved.delete(reservation);
      }
    },
  };
}
