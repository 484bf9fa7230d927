import { isCayError, type SandboxId } from '@cay/sdk/protocol';
import { freezeInstance } from '../../host/instances/instance.ts';
import { faultPoint } from '../../lib/fault-point.ts';
import type { Observation } from '../backend.ts';
import { requireReady, save, type Engine } from './engine.ts';
import { observationOf, type SandboxRecord } from './sandbox-record.ts';

export const FREEZE_FAULTS = ['local.freeze.recorded', 'local.freeze.done'] as const;

/**
 * Freezes or thaws the sandbox's processes. A crash between record and operation is repaired when
 * the next server opens.
 */
export async function setFrozen(engine: Engine, id: SandboxId, frozen: boolean): Promise<Observation> {
  const { record, instance } = requireReady(engine, id);
  if (record.frozen === frozen && instance.frozen === frozen) return observationOf(record);
  try {
    const observation = await note(engine, { ...record, frozen });
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

async function note(engine: Engine, record: SandboxRecord): Promise<Observation> {
  try {
    return await save(engine, record);
  } catch (error) {
    if (record.frozen || !isCayError(error, 'resource_exhausted')) throw error;
    // A full disk must not keep a frozen sandbox from its callers. After a crash the record still says
    // frozen, and the next server freezes it again.
    engine.onError(error);
    engine.records.remember(record);
    engine.changes.send(observationOf(record));
    return observationOf(record);
  }
}
