import type { SandboxId, SandboxSpec } from '@cay/sdk/protocol';
import type { Semaphore } from '../../../lib/semaphore.ts';
import type { CallScope, Observation } from '../../backend.ts';
import type { ObservationFeed } from '../../support/observation-feed.ts';
import type { PodAdmission } from '../pod-admission.ts';
import type { NetworkEnforcing } from '../tenancy/network-enforcement.ts';
import type { VolumeClaims } from '../volumes/volume-claims.ts';
import type { WorkloadContext } from '../workloads/workload-context.ts';
import type { Found } from '../workloads/workload.ts';
import type { SnapshotStore } from './snapshot-store.ts';
import type { SpecFiles } from './spec-files.ts';

/** What the verbs of snapshots share. */
export interface TravelContext extends WorkloadContext {
  store: SnapshotStore;
  specs: SpecFiles;
  admission: PodAdmission;
  volumes: Pick<VolumeClaims, 'requireAll'>;
  /** Bounds how many pods are started at once. */
  starts: Semaphore;
  changes: ObservationFeed;
  network: NetworkEnforcing | undefined;
  /** The names of workloads that are being made beside sandboxes now. */
  underWay: Set<string>;
  /** The most bytes that the files of a sandbox have. */
  mostBytes(spec: SandboxSpec): number;
  observed(id: SandboxId, found: Found): Observation;
  ensure(id: SandboxId, spec: SandboxSpec, scope?: CallScope): Promise<Observation>;
}
