import type { CallScope } from '../backend.ts';

/** How much of a resource is left. `totalBytes` includes what programs outside of sandboxes use. */
export interface Capacity {
  totalBytes: number;
  freeBytes: number;
}

/**
 * What is left on a platform. A resource without a bound is absent. `pids` counts processes and threads,
 * `pool` the instances of the warm pool.
 */
export interface PlatformCapacity {
  memory?: Capacity;
  disk?: Capacity;
  pids?: { total: number; free: number };
  pool?: { ready: number; wanted: number };
}

/** Says how much room the platform has. Asked every few seconds, so it must take milliseconds. */
export interface Measuring {
  capacity(scope?: CallScope): Promise<PlatformCapacity>;
}
