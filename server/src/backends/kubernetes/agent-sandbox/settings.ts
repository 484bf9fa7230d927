import { CayError } from '@cay/sdk/protocol';
import type { ClusterSettings } from '../cluster-settings.ts';
import type { PodBackendOptions } from '../pod-backend.ts';
import { checkWarmPool } from '../workloads/warm-pool-size.ts';

export interface AgentSandboxOptions extends PodBackendOptions, PoolAndStorage {}

export interface PoolAndStorage {
  /** Sandboxes of the default spec that are kept running in advance. Default 0. */
  warmPool?: number;
  /**
   * A volume for the files of each sandbox, apart from its pod: one that is stopped is then suspended, and
   * costs nothing but the volume. Without it the files are the pod's, and a stopped sandbox keeps its pod.
   */
  storage?: { size: string; storageClass?: string };
}

const QUANTITY = /^[1-9][0-9]*(Ki|Mi|Gi|Ti|k|M|G|T)?$/;

/** The settings that only this backend has. */
export function poolAndStorage({ warmPool, storage: size, storageClass }: ClusterSettings): PoolAndStorage {
  return {
    ...(warmPool !== undefined && { warmPool }),
    ...(size !== undefined && { storage: { size, storageClass } }),
  };
}

export function checkPoolAndStorage({ warmPool, storage }: PoolAndStorage): {
  warmPool: number;
  storage: PoolAndStorage['storage'];
} {
  if (storage && !QUANTITY.test(storage.size)) {
    throw new CayError(
      'invalid_argument',
      `Storage of "${storage.size}" cannot be: must be a quantity such as "5Gi"`,
    );
  }
  return { warmPool: checkWarmPool(warmPool), storage };
}
