/**
 * Snapshots, clones, rollbacks and pauses of the local backend, where what they promise is not seen through
 * the contract alone.
 */
import { readdir, rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { Readable } from 'node:stream';
import { CayError, newId, SandboxSpecSchema } from '@cay/sdk/protocol';
import { afterEach, describe, expect, it } from 'vitest';
import { until } from '../../../../test/conformance/box.ts';
import { whyNoLocal } from '../../../../test/support/local-platform.ts';
import { baseTemplate } from '../../host/templates/base.ts';
import type { Template } from '../../host/templates/template.ts';
import { armFaultPoints } from '../../lib/fault-point.ts';
import { localWorld, type LocalWorld } from './testing/local-world.ts';

const reason = whyNoLocal();

describe.skipIf(reason !== undefined)(
  `time travel of the local backend${reason ? ` (skipped: ${reason})` : ''}`,
  () => {
    let world: LocalWorld;
    afterEach(() => world.destroy());

    it('what is frozen is frozen after a restart of the server, and ensure() lets it run', async () => {
      world = await localWorld({ runtime: 'runc' });
      const first = await world.open();
      const id = await world.box(first);
      await first.freeze(id);
      expect(await first.observe(id)).toMatchObject({ phase: 'ready', frozen: true });
      await first.close();
      const second = await world.open();
      expect(await second.observe(id)).toMatchObject({ phase: 'ready', frozen: true, incarnation: 1 });
      expect(await world.freezerState(id)).toBe('frozen');
      expect((await second.ensure(id, world.spec)).frozen).toBeUndefined();
      expect(await world.freezerState(id)).toBe('thawed');
      expect(await world.run(second, id, 'echo alive')).toBe('alive');
    });

    it('a server that died between the record and the freezing is made up for', async () => {
      world = await localWorld({ runtime: 'runc' });
      const first = await world.open();
      const id = await world.box(first);
      await first.close();
      await world.changeRecord(id, { frozen: true });
      const second = await world.open();
      expect(await world.freezerState(id)).toBe('frozen');
      await second.thaw(id);
      expect(await world.run(second, id, 'echo alive')).toBe('alive');
    });

    it('what was killed while it was frozen is seen as failed when it should run', async () => {
      world = await localWorld({ runtime: 'runc' });
      const backend = await world.open();
      const id = await world.box(backend);
      await backend.freeze(id);
      await world.kill(id);
      await backend.thaw(id).catch(() => {});
      await until('it is seen as failed', async () => (await backend.observe(id)).phase === 'failed');
      expect(await backend.ensure(id, world.spec)).toMatchObject({ phase: 'ready', incarnation: 2 });
    });

    it('a snapshot that was removed comes back from its archive, although others descend from it', async () => {
      world = await localWorld({ runtime: 'runc' });
      const backend = await world.open();
      const id = await world.box(backend);
      const [first, second] = [newId('snap'), newId('snap')];
      await world.note(backend, id, 'first');
      await backend.snapshot(id, first);
      const archive = await Array.fromAsync(backend.exportSnapshot(first));
      await backend.rollback(id, first);
      await world.note(backend, id, 'second');
      await backend.snapshot(id, second);
      await backend.rollback(id, second);
      await backend.removeSnapshot(first);
      expect(await world.snapshotTrees()).toHaveLength(2);
      await backend.importSnapshot(first, Readable.from(archive));
      await backend.rollback(id, first);
      expect(await world.readNote(backend, id)).toBe('first');
      await backend.rollback(id, second);
      expect(await world.readNote(backend, id)).toBe('second');
      await backend.remove(id);
      for (const snapshot of [first, second]) await backend.removeSnapshot(snapshot);
      expect(await world.snapshotTrees()).toEqual([]);
    }, 30_000);

    it('a snapshot of what is frozen leaves it frozen, and a rollback lets it run', async () => {
      world = await localWorld({ runtime: 'runc' });
      const backend = await world.open();
      const id = await world.box(backend);
      await world.note(backend, id, 'then');
      await backend.freeze(id);
      const snapshot = newId('snap');
      await backend.snapshot(id, snapshot);
      expect(await world.freezerState(id)).toBe('frozen');
      expect(await backend.rollback(id, snapshot)).toMatchObject({ phase: 'ready', incarnation: 2 });
      expect((await backend.observe(id)).frozen).toBeUndefined();
      expect(await world.readNote(backend, id)).toBe('then');
    });

    it('a clone shows what its parent showed of the host, also when the template has changed', async () => {
      world = await localWorld({ runtime: 'runc' });
      const base = baseTemplate();
      const first = await world.open();
      const id = await world.box(first);
      const snapshot = newId('snap');
      await first.snapshot(id, snapshot);
      await first.close();
      // Another day the template shows nothing of the host: no program would run on it.
      const bare: Template = {
        ...base,
        prepare: async (trees, ids) => ({ ...(await base.prepare(trees, ids)), binds: [] }),
      };
      const second = await world.open({ templates: new Map([['base', bare]]) });
      const child = newId('sbx');
      await second.clone(child, world.spec, snapshot);
      await second.ensure(child, world.spec);
      expect(await world.run(second, child, 'echo alive')).toBe('alive');
      await second.stop(id, { graceMs: 0 });
      await second.ensure(id, world.spec);
      expect(await world.run(second, id, 'echo alive')).toBe('alive');
    });

    it('the disk of a clone is as large as its own spec says, and so is it after a rollback', async () => {
      world = await localWorld({ runtime: 'runc' });
      const backend = await world.open();
      const id = await world.box(backend);
      const snapshot = newId('snap');
      await backend.snapshot(id, snapshot);
      const spec = SandboxSpecSchema.parse({ runtime: 'runc', limits: { diskBytes: 16 * 1024 * 1024 } });
      const child = newId('sbx');
      await backend.clone(child, spec, snapshot);
      await backend.ensure(child, spec);
      const fill = 'head -c 32M /dev/zero > /home/user/big && echo fits || echo full';
      expect(await world.run(backend, child, fill)).toBe('full');
      await backend.rollback(child, snapshot);
      expect(await world.run(backend, child, fill)).toBe('full');
    });

    it('a snapshot that others descend from is gone for callers at once, and its tree when they are gone', async () => {
      world = await localWorld({ runtime: 'runc' });
      const backend = await world.open();
      const id = await world.box(backend);
      const [one, two] = [newId('snap'), newId('snap')];
      await backend.snapshot(id, one);
      await backend.rollback(id, one);
      await backend.snapshot(id, two);
      await backend.remove(id);
      await backend.removeSnapshot(one);
      expect((await backend.snapshots()).map((each) => each.id)).toEqual([two]);
      await expect(backend.clone(newId('sbx'), world.spec, one)).rejects.toMatchObject({ code: 'not_found' });
      // What is still needed is nothing that was left behind.
      expect(await backend.sweep({ dryRun: true })).toEqual([]);
      await backend.close();
      const again = await world.open();
      expect((await again.snapshots()).map((each) => each.id)).toEqual([two]);
      await again.removeSnapshot(two);
      expect(await world.snapshotTrees()).toEqual([]);
      expect(await readdir(join(world.dir, 'snapshots'))).toEqual([]);
    });

    it('a snapshot whose tree cannot be taken away yet is removed nevertheless, and never refused after that', async () => {
      world = await localWorld({ runtime: 'runc' });
      const backend = await world.open();
      const [id, taken] = [await world.box(backend), newId('snap')];
      await backend.snapshot(id, taken);
      armFaultPoints({
        'local.removeSnapshot.reaping': () =>
          Promise.reject(new CayError('failed_precondition', 'Something has come to stand on it')),
      });
      try {
        await backend.removeSnapshot(taken);
      } finally {
        armFaultPoints();
      }
      expect(await backend.snapshots()).toEqual([]);
      await backend.removeSnapshot(taken);
      await backend.sweep();
      expect(await world.snapshotTrees()).toEqual([]);
    });

    it('a snapshot is not removed while a rollback to it is under way', async () => {
      world = await localWorld({ runtime: 'runc' });
      const backend = await world.open();
      const id = await world.box(backend);
      const snapshot = newId('snap');
      await backend.snapshot(id, snapshot);
      const going = backend.rollback(id, snapshot);
      await until('the rollback is recorded', async () => (await world.record(id)).next !== undefined);
      await expect(backend.removeSnapshot(snapshot)).rejects.toMatchObject({
        code: 'failed_precondition',
        details: { sandboxes: [id] },
      });
      await going;
    });

    it('a damaged snapshot record is named, with what to do about it', async () => {
      world = await localWorld({ runtime: 'runc' });
      await (await world.open()).close();
      const path = join(world.dir, 'snapshots', `${newId('snap')}.json`);
      await writeFile(path, '{"id":1}');
      await expect(world.open()).rejects.toMatchObject({
        code: 'internal',
        message: expect.stringContaining(path),
        hint: expect.any(String),
      });
      await rm(path);
    });
  },
);
