import { ANNOTATIONS } from './names.ts';
import type { Found } from './workloads.ts';

/** The limits that a sandbox was made with, as they are written on what keeps it. */
export function limitsOf({ workload }: Pick<Found, 'workload'>): { cpus: number | null; memoryBytes: number | null } {
  const read = (name: string) => Number(workload.metadata.annotations?.[name]) || null;
  return { cpus: read(ANNOTATIONS.cpus), memoryBytes: read(ANNOTATIONS.memoryBytes) };
}
