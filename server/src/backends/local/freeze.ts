import type { SandboxId } from '@cay/sdk/protocol';
import { freezeInstance } from '../../host/instances/instance.ts';
import { faultPoint } from '../../lib/fault-point.ts';
import type { Observation } from '../backend.ts';
import { requireReady, save, type Engine } from './engine.ts';
import { observationOf } from './sandbox-record.ts';

export const FREEZE_FAULTS = ['local.freeze.recorded', 'local.freeze.done'] as const;

/** Has the sandbox's processes stand still, or lets them go on. A crash between record and deed is mended when the next server opens. */
export async function setFrozen(engine: Engine, id: SandboxId, frozen: boolean): Promise<Observation> {
  const { record, instance } = requireReady(engine, id);
  if (record.frozen === frozen && instance.frozen === frozen) return observationOf(record);
  try {
    const observation = await save(engine, { ...record, frozen });
    await faultPoint('local.freeze.recorded');
    await freezeInstance(instance, frozen);
    await faultPoint('local.freeze.done');
    return observation;
  } catch (error) {
    await freezeInstance(instance, record.frozen).catch(engine.onError);
    await save(engine, record).catch(engine.onError);
    throw error;
  }
}
