/** Volumes of the local backend: crashes at every step, gVisor beside runc, and directories of the host. */
import { mkdirSync, mkdtempSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { newId, type Mount, type SandboxSpec, type VolumeId } from '@cay/sdk/protocol';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { whyNoLocal } from '../../../../test/support/local-platform.ts';
import { isVolumeTree, VOLUME_FAULTS } from '../../host/volumes/open-volume-store.ts';
import { armFaultPoints } from '../../lib/fault-point.ts';
import { openPolicy } from '../../policy/policy.ts';
import { localWorld, type LocalParts, type LocalWorld } from './testing/local-world.ts';

const reason = whyNoLocal();
const mount = (volume: VolumeId, path = '/data'): Mount => ({
  type: 'volume',
  volume,
  path,
  readOnly: false,
});

describe.skipIf(reason !== undefined)(`local volumes${reason ? ` (skipped: ${reason})` : ''}`, () => {
  let world: LocalWorld;
  beforeEach(async () => {
    world = await localWorld({ runtime: 'runc' });
  });
  afterEach(async () => {
    armFaultPoints();
    await world.destroy();
  });

  const withMounts = (...mounts: Mount[]): SandboxSpec => ({ ...world.spec, mounts });

  it.each(VOLUME_FAULTS)('a server that dies at %s leaves a volume that is there or none', async (point) => {
    let trees: LocalParts['resources']['trees'];
    const open = () =>
      world.open({}, (parts) => {
        trees = parts.resources.trees;
        return parts;
      });
    let backend = await open();
    const volumes = () => backend.ability('volumes')!;
    const source = newId('vol');
    await volumes().createVolume(source, { sizeBytes: null });
    const [clone, snapshot] = [newId('vol'), newId('vol')];
    const all = Promise.withResolvers<void>();
    let reached = 0;
    armFaultPoints({
      [point]: () => {
        // One that is still on its way would go on after the server's end.
        if (++reached === work.length) all.resolve();
        return new Promise<void>(() => {});
      },
    });
    const work = point.startsWith('volume.create')
      ? [
          volumes().createVolume(clone, { sizeBytes: null, from: source }),
          volumes().createVolume(snapshot, { sizeBytes: null, from: source, readOnly: true }),
        ]
      : [volumes().removeVolume(source)];
    for (const each of work) each.catch(() => {});
    await all.promise;
    await world.abandon(backend);
    armFaultPoints();

    backend = await open();
    const found = (await volumes().listVolumes()).map(({ id }) => id);
    for (const id of found) expect(await volumes().inspectVolume(id)).toMatchObject({ id });
    if (point.startsWith('volume.remove')) expect(found).toEqual([]);
    else expect(found).toContain(source);
    for (const id of found) await volumes().removeVolume(id);
    await backend.ability('sweep')!.sweep();
    expect((await trees!.list()).map(({ name }) => name).filter(isVolumeTree)).toEqual([]);
    // The same id can be made again.
    await volumes().createVolume(clone, { sizeBytes: null });
    await volumes().removeVolume(clone);
  });

  it('runc and gVisor share one with ids of their own, and agree on owners and content', async (context) => {
    const backend = await world.open();
    if (!(await backend.capabilities()).runtimes.includes('runsc')) context.skip('there is no runsc');
    const id = newId('vol');
    await backend.ability('volumes')!.createVolume(id, { sizeBytes: null });
    const runc = await world.box(backend, withMounts(mount(id)));
    const runsc = await world.box(backend, { ...withMounts(mount(id)), runtime: 'runsc' });
    for (let round = 0; round < 20; round++) {
      const [writer, reader] = round % 2 === 0 ? [runc, runsc] : [runsc, runc];
      await world.run(backend, writer, `echo ${round} >> /data/log; echo ${round} > /data/latest`);
      expect(
        await world.run(backend, reader, 'cat /data/latest; tail -n 1 /data/log; stat -c %u /data/log'),
      ).toBe(`${round}\n${round}\n1000`);
    }
    const [one, other] = [await world.record(runc), await world.record(runsc)];
    expect(one.instance).not.toBe(other.instance);
  });

  it('counts a clone with what it began with', async (context) => {
    const MiB = 1024 * 1024;
    const backend = await world.open();
    if (!(await backend.capabilities()).abilities.volumeSize) context.skip('the storage has no quota');
    const volumes = backend.ability('volumes')!;
    const [id, clone] = [newId('vol'), newId('vol')];
    await volumes.createVolume(id, { sizeBytes: 64 * MiB });
    const box = await world.box(backend, withMounts(mount(id)));
    await world.run(backend, box, 'head -c 30M /dev/urandom > /data/large; sync');
    await expect(volumes.createVolume(clone, { sizeBytes: 20 * MiB, from: id })).rejects.toMatchObject({
      code: 'failed_precondition',
    });
    await volumes.createVolume(clone, { sizeBytes: 64 * MiB, from: id });
    expect((await volumes.inspectVolume(clone)).usedBytes).toBeGreaterThan(29 * MiB);
    const other = await world.box(backend, withMounts(mount(clone)));
    expect(await world.run(backend, other, 'head -c 60M /dev/zero > /data/more 2>&1 || echo full')).toMatch(
      /full/,
    );
    await backend.remove(box);
    await backend.remove(other);
    await volumes.removeVolume(clone);
    await volumes.removeVolume(id);
  });

  describe('directories of the host', () => {
    let shown: string;
    beforeEach(() => {
      shown = mkdtempSync('/tmp/cay-host-path-');
      mkdirSync(join(shown, 'set', 'inner'), { recursive: true, mode: 0o755 });
      writeFileSync(join(shown, 'set', 'note'), 'of the host');
      writeFileSync(join(shown, 'private'), 'secret', { mode: 0o600 });
      symlinkSync('/etc', join(shown, 'out'));
    });
    afterEach(() => rmSync(shown, { recursive: true, force: true }));

    const at = (source: string, readOnly = true): Mount => ({ type: 'host', source, path: '/set', readOnly });

    it('are mounted below what the operator allows, read-only, with the rights of others', async () => {
      const policy = openPolicy({ hostPaths: [{ path: shown, writable: false }] });
      const backend = await world.open({ policy });
      expect((await backend.capabilities()).abilities.hostPaths).toBe(true);
      const box = await world.box(backend, withMounts(at(join(shown, 'set'))));
      const line = 'cat /set/note; touch /set/new 2>&1; stat -c %U /set/note';
      const said = await world.run(backend, box, line);
      expect(said).toMatch(/^of the host/);
      expect(said).toMatch(/Read-only file system/);
      expect(said).not.toMatch(/root$/);
    });

    it('are refused elsewhere, to be written, and through a symlink', async () => {
      const policy = openPolicy({ hostPaths: [{ path: shown, writable: false }] });
      const backend = await world.open({ policy });
      for (const [source, readOnly] of [
        ['/etc', true],
        [`${shown}-other`, true],
        [join(shown, 'set'), false],
      ] as const)
        await expect(backend.validate(withMounts(at(source, readOnly)))).rejects.toMatchObject({
          code: 'permission_denied',
        });
      await expect(world.box(backend, withMounts(at(join(shown, 'out'))))).rejects.toMatchObject({
        code: 'failed_precondition',
        details: { reason: 'mount' },
      });
      await expect(world.box(backend, withMounts(at(join(shown, 'out', 'ssl'))))).rejects.toMatchObject({
        code: 'failed_precondition',
      });
    });
  });

  it('a sandbox that puts a symlink in place of its mount point does not start on it', async () => {
    const backend = await world.open();
    const id = newId('vol');
    await backend.ability('volumes')!.createVolume(id, { sizeBytes: null });
    const spec = withMounts(mount(id, '/home/user/deep/data'));
    const box = await world.box(backend, spec);
    await backend.stop(box, { graceMs: 500 });
    const { tree } = await world.record(box);
    await backend.close();
    let trees: LocalParts['resources']['trees'];
    const again = await world.open({}, (parts) => {
      trees = parts.resources.trees;
      return parts;
    });
    const path = await trees!.path(tree);
    rmSync(join(path, 'home/user/deep'), { recursive: true });
    symlinkSync('/run', join(path, 'home/user/deep'));
    await expect(again.ensure(box, spec)).rejects.toMatchObject({ code: 'failed_precondition' });
    expect((await again.observe(box)).phase).toBe('failed');
  });

  it('mounts nothing on what the template has of the host', async () => {
    const backend = await world.open();
    const id = newId('vol');
    await backend.ability('volumes')!.createVolume(id, { sizeBytes: null });
    await expect(world.box(backend, withMounts(mount(id, '/usr/share/data')))).rejects.toMatchObject({
      code: 'invalid_argument',
    });
  });
});
