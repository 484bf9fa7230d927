import type { SandboxId, Stats } from '@cay/sdk/protocol';
import { readInstance } from '../../host/instances/instance.ts';
import type { StatsScope } from '../backend.ts';
import { requireReady, requireRecord, type Engine } from './engine.ts';

/**
 * On some storage what a tree takes is found by a walk, which is too much for a reading every few seconds.
 */
export async function statsOf(
  engine: Engine,
  id: SandboxId,
  { cheap = false }: StatsScope = {},
): Promise<Stats> {
  const { record, instance } = requireReady(engine, id);
  const [reading, diskBytes] = await Promise.all([
    readInstance(instance),
    cheap && !engine.resources.trees.capabilities.quota ? null : engine.resources.trees.usage(record.tree),
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
    diskReadBytes: reading.diskReadBytes ?? null,
    diskWriteBytes: reading.diskWriteBytes ?? null,
  };
}

/** What its tree takes on disk, whether it runs or not. */
export async function spaceOf(engine: Engine, id: SandboxId): Promise<{ fileBytes: number | null }> {
  const record = requireRecord(engine, id);
  return { fileBytes: await engine.resources.trees.usage(record.tree).catch(() => null) };
}
