import type { SandboxSpec } from '@cay/sdk/protocol';
import type { SealedBox } from '../../../lib/sealed-box.ts';
import type { CallScope, Snapshotting } from '../../backend.ts';
import type { PodBackendKind } from '../pod-kind.ts';
import { diskLimitOf } from '../workloads/disk.ts';
import type { OrphanObject } from '../workloads/sweep.ts';
import type { WorkloadContext } from '../workloads/workload-context.ts';
import { forgetSpecs, leftBeside } from './left-over.ts';
import { podSnapshots } from './pod-snapshots.ts';
import { snapshotStore } from './snapshot-store.ts';
import { specFiles, type SpecFiles } from './spec-files.ts';
import type { TravelContext } from './travel-context.ts';

/** Where snapshots and specs are kept, on the disk of the server. */
export interface KeepOptions {
  dir: string;
  /** Seals the environment of specs. Absent: it is in the clear. */
  box?: SealedBox | undefined;
}

export interface Travel {
  readonly snapshots: Snapshotting;
  readonly specs: SpecFiles;
  /** Lists orphans in the cluster, and removes those on the disk. */
  leftOver(scope?: CallScope & { dryRun?: boolean }): Promise<OrphanObject[]>;
}

type Shared = 'admission' | 'starts' | 'changes' | 'network' | 'observed' | 'ensure' | 'volumes';

/** Snapshots of the pods of one namespace. */
export function openTravel(
  { name, volumeBytes }: Pick<PodBackendKind, 'name' | 'volumeBytes'>,
  { dir, box, context, ...shared }: KeepOptions & Pick<TravelContext, Shared> & { context: WorkloadContext },
): Travel {
  const { namespace, settings, onError } = context;
  const own = `${dir}/${name}/${namespace}`;
  const specs = specFiles(`${own}/specs`, box, onError);
  const travel: TravelContext = {
    ...context,
    ...shared,
    store: snapshotStore({ dir: `${own}/snapshots`, box, onError }),
    specs,
    underWay: new Set<string>(),
    mostBytes: (spec: SandboxSpec) => volumeBytes ?? diskLimitOf(spec.limits, settings),
  };
  return {
    snapshots: podSnapshots(travel),
    specs,
    async leftOver(scope) {
      await forgetSpecs(travel, scope);
      return leftBeside(travel, scope);
    },
  };
}
