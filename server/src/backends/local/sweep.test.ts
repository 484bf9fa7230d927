/** Looking for what was left behind, while others work. */
import { mkdir, readdir, utimes, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { newId } from '@cay/sdk/protocol';
import { afterEach, describe, expect, it } from 'vitest';
import { until } from '../../../../test/conformance/box.ts';
import { whyNoLocal } from '../../../../test/support/local-platform.ts';
import type { Orphan } from '../backend.ts';
import { localWorld, type LocalParts, type LocalWorld } from './testing/local-world.ts';

const reason = whyNoLocal();

describe.skipIf(reason !== undefined)(`sweeping${reason ? ` (skipped: ${reason})` : ''}`, () => {
  let world: LocalWorld;
  afterEach(() => world.destroy());

  /** One of each kind, as a server that was killed leaves them. */
  async function litter({ resources, images, records }: LocalParts): Promise<Orphan[]> {
    const name = (prefix: string, at: number) => `${prefix}-${'litter'.padEnd(19, 'x')}${at}`;
    await mkdir(join(world.dir, 'instances', name('i', 1)), { recursive: true });
    await resources.cgroups.group(name('i', 2)).create({ cpus: null, memoryBytes: null, pids: null });
    await resources.trees.prepare(name('i', 3));
    await resources.trees.commit(name('s', 4), name('i', 3));
    await images.make(name('m', 5));
    const temporary = join(records.dir, `${newId('sbx')}.json.1-1.tmp`);
    await writeFile(temporary, '{');
    await utimes(temporary, new Date(0), new Date(0));
    return [
      { kind: 'instance', name: name('i', 1) },
      { kind: 'cgroup', name: name('i', 2) },
      { kind: 'tree', name: name('i', 3) },
      { kind: 'snapshot_tree', name: name('s', 4) },
      { kind: 'image', name: name('m', 5) },
      { kind: 'temporary_file', name: temporary },
    ];
  }

  it('finds orphans of every kind, and removes them', async () => {
    world = await localWorld({ runtime: 'runc' });
    let parts: LocalParts | undefined;
    const backend = await world.open({}, (all) => (parts = all));
    const id = await world.box(backend);
    const left = await litter(parts!);
    const sorted = (orphans: Orphan[]) => orphans.toSorted((a, b) => (a.name < b.name ? -1 : 1));
    expect(sorted(await backend.sweep({ dryRun: true }))).toEqual(sorted(left));
    expect(sorted(await backend.sweep())).toEqual(sorted(left));
    expect(await backend.sweep()).toEqual([]);
    expect(await readdir(join(world.dir, 'images'))).toEqual([]);
    expect(await world.run(backend, id, 'echo alive')).toBe('alive');
  });

  it('happens by itself, and tells what it found', async () => {
    world = await localWorld({ runtime: 'runc' });
    const swept: Orphan[] = [];
    let parts: LocalParts | undefined;
    await world.open(
      { sweepEveryMs: 50, onSwept: (orphans) => swept.push(...orphans) },
      (all) => (parts = all),
    );
    const left = await litter(parts!);
    await until('all of it was found', () => swept.length >= left.length);
    expect(new Set(swept.map(({ kind }) => kind))).toEqual(new Set(left.map(({ kind }) => kind)));
  });

  it('leaves a temporary file alone that may still be written', async () => {
    world = await localWorld({ runtime: 'runc' });
    const backend = await world.open();
    const path = join(world.dir, 'sandboxes', `${newId('sbx')}.json.1-1.tmp`);
    await writeFile(path, '{');
    expect(await backend.sweep()).toEqual([]);
    expect(await readdir(join(world.dir, 'sandboxes'))).toHaveLength(1);
  });

  it('leaves a runtime alone that is just proving itself', async () => {
    world = await localWorld({ runtime: 'runc' });
    let parts: LocalParts | undefined;
    const backend = await world.open({}, (all) => (parts = all));
    await parts!.resources.cgroups
      .group('probe-abcdefgh')
      .create({ cpus: null, memoryBytes: null, pids: null });
    expect(await backend.sweep()).toEqual([]);
    await backend.close();
    const swept = await world.open();
    expect(await parts!.resources.cgroups.list()).toEqual([]);
    expect(await swept.sweep()).toEqual([]);
  });

  it('never takes anything from those who work meanwhile', async () => {
    world = await localWorld({ runtime: 'runc' });
    const backend = await world.open({ poolSize: 2 });
    let working = true;
    const found: Orphan[] = [];
    const sweeping = (async () => {
      while (working) {
        found.push(...(await backend.sweep()));
        await sleep(5);
      }
    })();
    const work = async (): Promise<void> => {
      for (let round = 0; round < 3; round++) {
        const [id, child, snapshot] = [await world.box(backend), newId('sbx'), newId('snap')];
        await world.note(backend, id, 'then');
        await backend.snapshot(id, snapshot);
        await backend.clone(child, world.spec, snapshot);
        await backend.ensure(child, world.spec);
        await backend.rollback(id, snapshot);
        await backend.stop(child, { graceMs: 0 });
        await backend.rollback(child, snapshot);
        await backend.ensure(child, world.spec);
        expect(await world.readNote(backend, child)).toBe('then');
        expect(await world.readNote(backend, id)).toBe('then');
        await Promise.all([backend.remove(id), backend.remove(child)]);
        await backend.removeSnapshot(snapshot);
      }
    };
    await Promise.all([work(), work()]).finally(() => (working = false));
    await sweeping;
    expect(found).toEqual([]);
    expect(world.errors).toEqual([]);
  }, 60_000);
});
