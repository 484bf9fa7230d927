import type { SandboxId, Stats } from '@cay/sdk/protocol';
import { readInstance } from '../../host/instances/instance.ts';
import { requireReady, type Engine } from './engine.ts';

export async function statsOf(engine: Engine, id: SandboxId): Promise<Stats> {
  const { record, instance } = requireReady(engine, id);
  const [reading, diskBytes] = await Promise.all([
    readInstance(instance),
    engine.resources.trees.usage(record.tree),
  ]);
  return {
    atMs: Date.now(),
    ...reading,
    memoryLimitBytes: record.spec.limits.memoryBytes,
    diskBytes,
    diskLimitBytes: record.spec.limits.diskBytes,
    // A sandbox has a loopback device and no other: nothing leaves it but through the guest.
    networkRxBytes: null,
    networkTxBytes: null,
  };
}
