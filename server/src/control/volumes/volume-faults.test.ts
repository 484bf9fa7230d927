/**
 * The control plane is killed at every fault point of volumes. The next one finishes or undoes what was
 * begun.
 */
import { CreateVolumeSchema } from '@cay/sdk/protocol';
import { afterEach, describe, expect, it } from 'vitest';
import { armFaultPoints } from '../../lib/fault-point.ts';
import { installation, memoryBackend, type Installation, type TestControl } from '../testing/test-control.ts';

let place: Installation | undefined;
afterEach(() => {
  armFaultPoints();
  place?.remove();
});

const make = ({ control, principal }: TestControl, name: string) =>
  control.volumes.create(principal, CreateVolumeSchema.parse({ name }));
const names = async ({ control, principal }: TestControl) =>
  (await control.volumes.list(principal)).map(({ name }) => name);

/** Begins the operation, and kills the control plane when it has reached the point. */
async function killedAt(
  point: string,
  operation: (test: TestControl) => Promise<unknown>,
): Promise<{ next: TestControl; onBackend: () => Promise<number> }> {
  place = installation();
  const backend = memoryBackend();
  const first = await place.open(backend);
  await make(first, 'present');
  const reached = new Promise<void>((resolve) => {
    armFaultPoints({
      [point]: () => {
        resolve();
        return new Promise<void>(() => {});
      },
    });
  });
  operation(first).catch(() => {});
  await reached;
  await first.kill();
  armFaultPoints();
  const next = await place.open(backend);
  return { next, onBackend: async () => (await backend.ability('volumes')!.listVolumes()).length };
}

describe('a killed control plane', () => {
  it.each(['control.volume.recorded', 'control.volume.made'])(
    'leaves no volume that was being made, at %s',
    async (point) => {
      const { next, onBackend } = await killedAt(point, (test) => make(test, 'new'));
      expect(await names(next)).toEqual(['present']);
      expect(await onBackend()).toBe(1);
      // The name is free again.
      expect(await make(next, 'new')).toMatchObject({ name: 'new' });
      expect(next.errors).toEqual([]);
      await next.control.close();
    },
  );

  it.each(['control.volume.removing', 'control.volume.removed'])(
    'removes a volume that was being removed, at %s',
    async (point) => {
      const { next, onBackend } = await killedAt(point, ({ control, principal }) =>
        control.volumes.remove(principal, 'present'),
      );
      expect(await names(next)).toEqual([]);
      expect(await onBackend()).toBe(0);
      expect(next.errors).toEqual([]);
      await next.control.close();
    },
  );
});
