import type { Measuring } from '../backend.ts';

type Room = Awaited<ReturnType<Measuring['capacity']>>;

/** Of each resource, what the platform has that is nearest to its end. */
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
  return { ...(memory && { memory }), ...(disk && { disk }), ...(pids && { pids }) };
}

function fullest<T>(all: T[], left: (one: T) => number): T | undefined {
  return all.toSorted((one, other) => left(one) - left(other))[0];
}
