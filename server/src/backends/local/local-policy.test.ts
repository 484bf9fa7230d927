/** What the operator allows holds for what an earlier server has left, too. */
import { readdir } from 'node:fs/promises';
import { join } from 'node:path';
import { newId } from '@cay/sdk/protocol';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { whyNoLocal } from '../../../../test/support/local-platform.ts';
import { openPolicy } from '../../policy/policy.ts';
import { localWorld, type LocalWorld } from './testing/local-world.ts';

const reason = whyNoLocal();
const refused = { code: 'permission_denied' };
const MiB = 1024 ** 2;

describe.skipIf(reason !== undefined)(
  `the policy of the local backend${reason ? ` (skipped: ${reason})` : ''}`,
  () => {
    const withoutRunc = openPolicy({ runtimes: ['runsc', 'crun'] });
    const withProcess = openPolicy({ runtimes: ['runc', 'process'], allowProcess: true });
    let world: LocalWorld;
    beforeEach(async () => void (world = await localWorld({ runtime: 'runc' })));
    afterEach(() => world.destroy());

    it('refuses a runtime by validate, ensure and clone, and does not start again what has it', async () => {
      const before = await world.open();
      const id = await world.box(before);
      const snapshot = newId('snap');
      await before.snapshot(id, snapshot);
      await before.stop(id, { graceMs: 0 });
      await before.close();

      const after = await world.open({ policy: withoutRunc, runtime: undefined });
      expect((await after.capabilities()).runtimes).not.toContain('runc');
      const details = { runtime: 'runc', allowed: ['runsc', 'crun'] };
      await expect(after.validate(world.spec)).rejects.toMatchObject({ ...refused, details });
      await expect(after.ensure(newId('sbx'), world.spec)).rejects.toMatchObject({ ...refused, details });
      await expect(after.ensure(id, world.spec)).rejects.toMatchObject(refused);
      await expect(
        after.rollback(id, snapshot).then(() => after.ensure(id, world.spec)),
      ).rejects.toMatchObject(refused);
      await expect(after.clone(newId('sbx'), world.spec, snapshot)).rejects.toMatchObject(refused);
      const { runtime: _runtime, ...unnamed } = world.spec;
      await expect(after.clone(newId('sbx'), unnamed, snapshot)).rejects.toMatchObject(refused);
      expect(await readdir(join(world.dir, 'instances'))).toEqual([]);
      await after.remove(id);
      expect((await after.observe(id)).phase).toBe('absent');
    });

    it('has no runtime without isolation, and ends what an earlier server ran with it', async () => {
      const before = await world.open({ policy: withProcess });
      const bare = { ...world.spec, runtime: 'process' };
      const id = await world.box(before, bare);
      const snapshot = newId('snap');
      await before.snapshot(id, snapshot);
      const { runtime: _runtime, ...unnamed } = bare;
      await expect(before.clone(newId('sbx'), unnamed, snapshot)).rejects.toMatchObject(refused);
      await before.close();

      const after = await world.open();
      expect((await after.observe(id)).phase).toBe('failed');
      expect(await readdir(join(world.dir, 'instances'))).toEqual([]);
      await expect(after.ensure(id, bare)).rejects.toMatchObject(refused);
      await expect(after.clone(newId('sbx'), bare, snapshot)).rejects.toMatchObject(refused);
      await after.remove(id);
      await after.removeSnapshot(snapshot);
    });

    it('hands nothing out of the warm pool that this server would not make', async () => {
      const before = await world.open({ poolSize: 1 });
      await before.warm();
      const [left] = await world.instances();
      await before.close();

      const limits = { memoryBytes: 256 * MiB, diskBytes: 512 * MiB, pids: 77 };
      const usual = openPolicy({ defaults: limits });
      const lower = await world.open({ poolSize: 1, policy: usual });
      await lower.warm();
      const id = await world.box(lower, { ...world.spec, limits: { ...world.spec.limits, ...limits } });
      expect((await world.record(id)).instance).toBe(left);
      expect(await lower.stats(id)).toMatchObject({ memoryLimitBytes: 256 * MiB, diskLimitBytes: 512 * MiB });
      await lower.remove(id);
      await lower.warm();
      const [runc] = await world.instances();
      await lower.close();

      const strict = await world.open({ poolSize: 1, policy: withoutRunc, runtime: undefined });
      expect(await world.instances()).not.toContain(runc);
      await strict.close();
    });

    it('starts a sandbox again with the limits of today, and the disk that it has', async () => {
      const backend = await world.open();
      const id = await world.box(backend);
      await backend.stop(id, { graceMs: 0 });
      const { limits } = world.spec;
      await backend.ensure(id, {
        ...world.spec,
        limits: { ...limits, memoryBytes: 256 * MiB, diskBytes: 512 * MiB },
      });
      expect(await backend.stats(id)).toMatchObject({
        memoryLimitBytes: 256 * MiB,
        diskLimitBytes: limits.diskBytes,
      });
    });
  },
);
