/** Everything that instances on this host share. Opened once, with the backend. */
import type { BucketMounts } from '../bucket-mounts/bucket-mounts.ts';
import type { Egress } from '../egress/egress.ts';
import type { Cgroups } from './cgroups/cgroup.ts';
import type { Runtime } from './runtimes/runtime.ts';
import type { Snapshotter } from './snapshots/snapshotter.ts';
import type { IdRanges } from './instances/id-ranges.ts';
import type { ShiftProbe } from './instances/probe-shift.ts';

export interface HostResources {
  /** The backend's own directory. */
  dir: string;
  trees: Snapshotter;
  cgroups: Cgroups;
  runtimes: Map<string, Runtime>;
  guestBinary: string;
  ranges: IdRanges;
  /** Whether instances can have id ranges of their own. Tested on the first call. */
  shift(): Promise<ShiftProbe>;
  /** What programs inside reach the network through. Absent: they reach nothing. */
  egress?: Egress | undefined;
  /** Mounts buckets for instances. Absent: nobody opens buckets. */
  bucketMounts?: BucketMounts | undefined;
  /** Identifies this boot of the machine; processes of another boot are gone. */
  bootId: string;
}
