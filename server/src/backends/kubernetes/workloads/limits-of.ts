import type { Limits } from '@cay/sdk/protocol';
import { ANNOTATIONS } from '../client/names.ts';
import type { Found } from './workload.ts';

/** The limits that a sandbox was made with, as they are written on what keeps it. */
export function limitsOf({
  workload,
}: Pick<Found, 'workload'>): Pick<Limits, 'cpus' | 'memoryBytes' | 'diskBytes'> {
  const read = (name: string) => Number(workload.metadata.annotations?.[name]) || null;
  return {
    cpus: read(ANNOTATIONS.cpus),
    memoryBytes: read(ANNOTATIONS.memoryBytes),
    diskBytes: read(ANNOTATIONS.diskBytes),
  };
}
