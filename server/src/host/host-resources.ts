/** What every instance on this host stands on. Made once, when the engine opens. */
import type { Cgroups } from './cgroups/cgroup.ts';
import type { Runtime } from './runtimes/runtime.ts';
import type { Snapshotter } from './snapshots/snapshotter.ts';
import type { IdRanges } from './instances/id-ranges.ts';
import type { ShiftProbe } from './instances/probe-shift.ts';

export interface HostResources {
  /** The engine's own directory. */
  dir: string;
  trees: Snapshotter;
  cgroups: Cgroups;
  runtimes: Map<string, Runtime>;
  guestBinary: string;
  ranges: IdRanges;
  /** Whether instances get ranges of their own: tried once, when it is first asked for. */
  shift(): Promise<ShiftProbe>;
  /** Names this boot of the machine; what another boot started is gone. */
  bootId: string;
}
