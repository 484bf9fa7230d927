import type { Measuring } from '../backend.ts';

type Room = Awaited<ReturnType<Measuring['capacity']>>;

/**
 * Of each resource, the capacity of the platform that has the smallest share of it left; of pools the sum.
 */
export function leastCapacity(rooms: readonly Room[]): Room {
  const memory = fullest(
    rooms.flatMap(({ memory }) => (memory ? [memory] : [])),
    ({ freeBytes, totalBytes }) => freeBytes / totalBytes,
  );
  const disk = fullest(
    rooms.flatMap(({ disk }) => (disk ? [disk] : [])),
    ({ freeBytes, totalBytes }) => freeBytes / totalBytes,
  );
  const pids = fullest(
    rooms.flatMap(({ pids }) => (pids ? [pids] : [])),
    ({ free, total }) => free / total,
  );
  const pools = rooms.flatMap(({ pool }) => (pool ? [pool] : []));
  const pool = {
    ready: pools.reduce((sum, { ready }) => sum + ready, 0),
    wanted: pools.reduce((sum, { wanted }) => sum + wanted, 0),
  };
  return {
    ...(memory && { memory }),
    ...(disk && { disk }),
    ...(pids && { pids }),
    ...(pools.length > 0 && { pool }),
  };
}

function fullest<T>(all: T[], left: (one: T) => number): T | undefined {
  return all.toSorted((one, other) => left(one) - left(other))[0];
}
