import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { armFaultPoints } from '../../lib/fault-point.ts';
import {
  asked,
  installation,
  memoryBackend,
  type Installation,
  type MemoryBackend,
  type TestControl,
} from '../testing/test-control.ts';

const MiB = 1024 * 1024;
let place: Installation;
let backend: MemoryBackend;
beforeEach(() => {
  place = installation();
  backend = memoryBackend();
});
afterEach(async () => {
  armFaultPoints();
  await backend.close();
  place.remove();
});

async function opened(): Promise<TestControl & { id: `sbx_${string}` }> {
  const test = await place.open(backend);
  const { sandbox } = await test.control.create(
    test.principal,
    asked({ name: 'box', limits: { memoryBytes: 256 * MiB } }),
  );
  return { ...test, id: sandbox.id };
}

describe('a change of limits', () => {
  it.each([
    ['control.resize.recorded', 128],
    ['control.resize.recorded', 512],
    ['control.resize.done', 128],
    ['control.resize.done', 512],
  ] as const)('that is cut short at %s is finished by the next server, to %i MiB', async (point, mib) => {
    const { kill, control, principal, id } = await opened();
    const reached = Promise.withResolvers<void>();
    armFaultPoints({ [point]: () => (reached.resolve(), new Promise(() => {})) });
    void control.update(principal, id, { limits: { memoryBytes: mib * MiB } });
    await reached.promise;
    await kill();
    armFaultPoints();
    const second = await place.open(backend);
    expect((await second.control.get(principal, id)).limits.memoryBytes).toBe(mib * MiB);
    expect((await backend.stats(id)).memoryLimitBytes).toBe(mib * MiB);
    expect((await second.sandboxes.get(id))!.operation).toBeNull();
    expect((await second.events.list({ sandbox: id })).at(-1)).toMatchObject({
      type: 'sandbox.updated',
      data: { cause: 'recovery' },
    });
    await second.control.close();
  });

  it('of a sandbox that has ended meanwhile is forgotten', async () => {
    const { kill, control, principal, id } = await opened();
    const reached = Promise.withResolvers<void>();
    armFaultPoints({ 'control.resize.recorded': () => (reached.resolve(), new Promise(() => {})) });
    void control.update(principal, id, { limits: { memoryBytes: 512 * MiB } });
    await reached.promise;
    await kill();
    armFaultPoints();
    backend.crash(id);
    const second = await place.open(backend);
    expect(await second.control.get(principal, id)).toMatchObject({
      state: 'failed',
      limits: { memoryBytes: 256 * MiB },
    });
    expect((await second.sandboxes.get(id))!.operation).toBeNull();
    await second.control.start(principal, id);
    expect((await backend.stats(id)).memoryLimitBytes).toBe(256 * MiB);
    await second.control.close();
  });

  it.each(['control.resize.recorded', 'control.resize.done'])(
    'that fails at %s has not happened',
    async (point) => {
      const { control, principal, sandboxes, id } = await opened();
      armFaultPoints({ [point]: 'error' });
      await expect(
        control.update(principal, id, { limits: { memoryBytes: 512 * MiB }, labels: { a: 'b' } }),
      ).rejects.toThrow('on purpose');
      armFaultPoints();
      expect(await control.get(principal, id)).toMatchObject({
        limits: { memoryBytes: 256 * MiB },
        labels: {},
      });
      expect((await backend.stats(id)).memoryLimitBytes).toBe(256 * MiB);
      expect((await sandboxes.get(id))!.operation).toBeNull();
      await control.update(principal, id, { limits: { memoryBytes: 512 * MiB }, labels: { a: 'b' } });
      expect(await control.get(principal, id)).toMatchObject({
        limits: { memoryBytes: 512 * MiB },
        labels: { a: 'b' },
      });
      await control.close();
    },
  );
});
