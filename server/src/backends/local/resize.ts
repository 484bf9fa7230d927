import type { Limits, SandboxId } from '@cay/sdk/protocol';
import { limitInstance } from '../../host/instances/instance.ts';
import { faultPoint } from '../../lib/fault-point.ts';
import { requireLimits } from '../support/check.ts';
import { requireReady, setQuota, type Engine } from './engine.ts';
import { validate } from './start.ts';

export async function resize(engine: Engine, id: SandboxId, limits: Partial<Limits>): Promise<void> {
  const { resources, records, onError } = engine;
  const { record, instance } = requireReady(engine, id);
  requireLimits(limits);
  const spec = { ...record.spec, limits: { ...record.spec.limits, ...limits } };
  await validate(engine, spec);
  const { cpus, memoryBytes, pids, diskBytes } = limits;
  const before = record.spec.limits;
  try {
    await limitInstance(instance, {
      ...(cpus !== undefined && { cpus }),
      ...(memoryBytes !== undefined && { memoryBytes }),
      ...(pids !== undefined && { pids }),
    });
    if (diskBytes !== undefined) await resources.trees.setQuota(record.tree, diskBytes);
    await faultPoint('local.resize.limited');
    await records.save({ ...record, spec });
  } catch (error) {
    // All of them change or none.
    await limitInstance(instance, {
      cpus: before.cpus,
      memoryBytes: before.memoryBytes,
      pids: before.pids,
    }).catch(onError);
    if (diskBytes !== undefined) await setQuota(resources, record.tree, before).catch(onError);
    throw error;
  }
}
