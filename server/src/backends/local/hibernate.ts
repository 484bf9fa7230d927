/** Putting a sandbox's processes on disk. */
import type { SandboxId } from '@cay/sdk/protocol';
import { captureInstance } from '../../host/instances/capture.ts';
import { destroyInstance, isAlive, type Instance } from '../../host/instances/instance.ts';
import { faultPoint } from '../../lib/fault-point.ts';
import type { Observation } from '../backend.ts';
import { requireCheckpoints } from './checkpoints.ts';
import { newName, requireReady, requireRecord, type Engine } from './engine.ts';
import { observationOf, type SandboxRecord } from './sandbox-record.ts';

export const HIBERNATE_FAULTS = [
  'local.hibernate.recorded',
  'local.hibernate.still',
  'local.hibernate.switched',
  'local.hibernate.ended',
  'local.hibernate.cleared',
] as const;

export async function hibernate(engine: Engine, id: SandboxId): Promise<Observation> {
  const { resources, images, records, onError } = engine;
  const found = requireRecord(engine, id);
  if (found.phase === 'hibernated') return observationOf(found);
  const { record, instance } = requireReady(engine, id);
  const checkpoints = requireCheckpoints(engine, record.runtime);
  const memory = { image: newName.image(), compatibility: await checkpoints.compatibility() };
  let hibernated: SandboxRecord = { ...record, phase: 'hibernated', frozen: false, memory };
  const hold = engine.held.hold(memory.image);
  let switched = false;
  try {
    // `ready` with an image means that the image is not whole yet.
    await records.save({ ...record, memory });
    await faultPoint('local.hibernate.recorded');
    const imageDir = await images.make(memory.image);
    await captureInstance(resources, instance, {
      imageDir,
      goOn: false,
      async whileStill() {
        await images.sync(memory.image);
        hibernated = { ...hibernated, memory: { ...memory, bytes: await images.bytes(memory.image) } };
        await faultPoint('local.hibernate.still');
        // Recorded before the instance ends: at any moment the sandbox either runs or can be woken.
        await records.save(hibernated);
        switched = true;
        await faultPoint('local.hibernate.switched');
      },
    });
    await faultPoint('local.hibernate.ended');
  } catch (error) {
    if (!switched || (await isAlive(resources, instance.facts).catch(() => true))) {
      await takeBack(engine, record, { instance, image: memory.image }).finally(() => hold.release());
      throw error;
    }
    // The instance has ended and its image is whole, so the sandbox is hibernated in spite of the failure.
    onError(error);
  }
  await finish(engine, hibernated, instance);
  hold.release();
  return observationOf(hibernated);
}

/**
 * Removes the instance. If that fails the instance stays in the record, and the next verb or the next server
 * tries again.
 */
async function finish(
  { resources, records, live, changes, onError }: Engine,
  record: SandboxRecord,
  instance: Instance,
): Promise<void> {
  live.delete(record.id);
  changes.send(observationOf(record));
  try {
    await destroyInstance(resources, instance);
    await faultPoint('local.hibernate.cleared');
    await records.save({ ...record, instance: undefined });
  } catch (error) {
    onError(error);
  }
}

/** The sandbox runs, or is frozen, as before. */
async function takeBack(
  { images, records, onError }: Engine,
  record: SandboxRecord,
  { instance, image }: { instance: Instance; image: string },
): Promise<void> {
  // If the record cannot be written it still names an image: the next server sees that the sandbox runs, and
  // drops the image.
  await records.save(record).catch(onError);
  await instance.runtime.checkpoints?.release(instance.facts.name).catch(onError);
  await images.remove(image).catch(onError);
}
