import { execFileSync } from 'node:child_process';
import { newId, type Mount, type VolumeId } from '@cay/sdk/protocol';
import { afterEach, expect } from 'vitest';
import type { VolumeKeeping } from '../../server/src/backends/backend.ts';
import { gather, until, type Box } from './box.ts';
import { rejects, type Suite } from './suite.ts';

const MiB = 1024 * 1024;

/** Volumes outlive sandboxes, are shared, and nothing that is done to a sandbox touches them. */
export function volumeCases(suite: Suite): void {
  const own = new Set<VolumeId>();
  /** The volumes of the platform that the suite's sandboxes are on. */
  function platformVolumes(): VolumeKeeping {
    const volumes = suite.ability('volumes');
    const { platform } = suite.spec();
    if (platform === undefined) return volumes;
    return {
      ...volumes,
      createVolume: (id, wish) => volumes.createVolume(id, { platform, ...wish }),
      importVolume: (id, wish, archive) => volumes.importVolume(id, { platform, ...wish }, archive),
    };
  }

  afterEach(async () => {
    const volumes = suite.backend.ability('volumes');
    for (const id of own) await volumes?.removeVolume(id);
    own.clear();
  });

  function volumeId(): VolumeId {
    const id = newId('vol');
    own.add(id);
    return id;
  }

  async function volume(wish: Partial<Parameters<VolumeKeeping['createVolume']>[1]> = {}): Promise<VolumeId> {
    const id = volumeId();
    await platformVolumes().createVolume(id, { sizeBytes: null, ...wish });
    return id;
  }

  const at = (id: VolumeId, more: Partial<Extract<Mount, { type: 'volume' }>> = {}): Mount => ({
    type: 'volume',
    volume: id,
    path: '/data',
    readOnly: false,
    ...more,
  });

  const text = async (box: Box, path: string) => (await box.read(path)).toString();

  suite.case('a volume outlives the sandbox that wrote to it', ['volumes'], async () => {
    const id = await volume();
    const first = await suite.box({ mounts: [at(id)] });
    await first.write('/data/note', 'kept');
    await suite.backend.remove(first.id);
    const second = await suite.box({ mounts: [at(id, { path: '/srv/else' })] });
    expect(await text(second, '/srv/else/note')).toBe('kept');
  });

  suite.case('a stop and a start leave it mounted', ['volumes'], async () => {
    const id = await volume();
    const mounts = [at(id)];
    const box = await suite.box({ mounts });
    await box.write('/data/note', 'before');
    await suite.backend.stop(box.id, { graceMs: 1000 });
    const again = await suite.wake(box.id, { mounts });
    expect(await text(again, '/data/note')).toBe('before');
  });

  suite.case('several sandboxes share it, and agree on owners', ['volumes'], async () => {
    const id = await volume();
    const [one, other] = await Promise.all([
      suite.box({ mounts: [at(id)] }),
      suite.box({ mounts: [at(id)] }),
    ]);
    await one.write('/data/a', 'first');
    expect(await text(other, '/data/a')).toBe('first');
    await other.write('/data/a', 'second, which is longer');
    expect(await text(one, '/data/a')).toBe('second, which is longer');
    await other.files.mkdir('/data/dir');
    await one.write('/data/dir/b', 'x');
    await other.files.remove('/data/a');
    await rejects(one.read('/data/a'), 'not_found');
    const [seen, mine] = [await other.files.stat('/data/dir/b'), await one.files.stat('/data/dir/b')];
    expect([seen.uid, seen.gid, seen.mode]).toEqual([mine.uid, mine.gid, mine.mode]);
    if (suite.capabilities.abilities.users) expect(seen.uid).toBe(1000);
  });

  suite.case('programs that hold a file open see what others append', ['volumes', 'processes'], async () => {
    const id = await volume();
    const [one, other] = [await suite.box({ mounts: [at(id)] }), await suite.box({ mounts: [at(id)] })];
    await one.write('/data/log', 'one\n');
    // Watching is another matter: gVisor tells no program of changes that it has not made itself.
    const tail = await other.start('exec 3< /data/log; while :; do cat <&3; sleep 0.1; done');
    const lines: string[] = [];
    void (async () => {
      for await (const chunk of tail.output)
        if (chunk.channel !== 'gap') lines.push(Buffer.from(chunk.data).toString());
    })().catch(() => {});
    await until('the first line is there', () => lines.join('') === 'one\n');
    await one.run('echo two >> /data/log');
    await until('the second line is there', () => lines.join('') === 'one\ntwo\n');
  });

  suite.case('a read-only mount cannot be written', ['volumes'], async () => {
    const id = await volume();
    const writer = await suite.box({ mounts: [at(id)] });
    await writer.write('/data/note', 'text');
    const reader = await suite.box({ mounts: [at(id, { readOnly: true })] });
    expect(await text(reader, '/data/note')).toBe('text');
    await rejects(reader.root.write('/data/note', Buffer.from('changed')), 'permission_denied');
    await rejects(reader.root.remove('/data/note'), 'permission_denied');
    expect(await text(writer, '/data/note')).toBe('text');
  });

  suite.case('it can be written where the root is read-only', ['volumes', 'readOnlyRoot'], async () => {
    const id = await volume();
    const guest = await (async () => {
      const sandbox = suite.id();
      await suite.backend.ensure(
        sandbox,
        suite.spec({ readOnlyRoot: true, mounts: [at(id, { path: '/tmp/data' })] }),
      );
      return suite.backend.connect(sandbox);
    })();
    await guest.files('user').write('/tmp/data/x', Buffer.from('y'));
    expect((await gather((await guest.files('user').read('/tmp/data/x')).data)).toString()).toBe('y');
  });

  suite.case('a part of it is mounted alone', ['volumes', 'volumeSubpath'], async () => {
    const id = await volume();
    const part = await suite.box({ mounts: [at(id, { subpath: 'agents/one' })] });
    await part.write('/data/note', 'of one');
    const whole = await suite.box({ mounts: [at(id)] });
    expect(await text(whole, '/data/agents/one/note')).toBe('of one');
    await rejects(part.read('/data/../agents/one/note'), 'not_found');
  });

  suite.case('a symlink leads no mount out of the volume', ['volumes', 'volumeSubpath'], async () => {
    const id = await volume();
    const whole = await suite.box({ mounts: [at(id)] });
    await whole.files.symlink('/data/out', '/etc');
    await whole.files.symlink('/data/up', '../../..');
    await whole.files.mkdir('/data/real');
    await whole.files.symlink('/data/inside', 'real');
    for (const subpath of ['out', 'up', 'up/etc', 'inside', 'out/ssl']) {
      const sandbox = suite.id();
      const spec = suite.spec({ mounts: [at(id, { subpath })] });
      await rejects(
        suite.backend.ensure(sandbox, spec),
        'failed_precondition',
        'invalid_argument',
        'unavailable',
      );
      expect((await suite.backend.observe(sandbox)).phase, subpath).toBe('absent');
    }
  });

  suite.case('its size is enforced', ['volumes', 'volumeSize'], async () => {
    const id = await volume({ sizeBytes: 32 * MiB });
    const box = await suite.box({ mounts: [at(id)] });
    await rejects(box.files.write('/data/large', Buffer.alloc(64 * MiB, 7)), 'resource_exhausted');
    await box.write('/data/small', Buffer.alloc(MiB, 7));
    // The disk of the sandbox is another.
    await box.write('large', Buffer.alloc(40 * MiB, 7));
    const { sizeBytes, usedBytes } = await platformVolumes().inspectVolume(id);
    expect(sizeBytes).toBe(32 * MiB);
    if (usedBytes !== null) expect(usedBytes).toBeLessThanOrEqual(33 * MiB);
  });

  suite.case('a size that cannot be enforced is refused', ['volumes'], async ({ skip }) => {
    if (suite.capabilities.abilities.volumeSize) skip('it can be enforced here');
    await rejects(platformVolumes().createVolume(volumeId(), { sizeBytes: 32 * MiB }), 'unsupported');
  });

  suite.case(
    'a snapshot keeps what it had, and a clone goes its own way',
    ['volumes', 'volumeCopies'],
    async () => {
      const id = await volume();
      const box = await suite.box({ mounts: [at(id)] });
      await box.write('/data/note', 'then');
      const snapshot = await volume({ from: id, readOnly: true });
      await box.write('/data/note', 'now');
      const clone = await volume({ from: id });
      const back = await volume({ from: snapshot });
      await box.write('/data/note', 'later');
      const others = await suite.box({
        mounts: [
          at(snapshot, { path: '/then', readOnly: true }),
          at(clone, { path: '/now' }),
          at(back, { path: '/back' }),
        ],
      });
      expect(await text(others, '/then/note')).toBe('then');
      expect(await text(others, '/now/note')).toBe('now');
      expect(await text(others, '/back/note')).toBe('then');
      await others.write('/now/note', 'own');
      await others.write('/back/note', 'own');
      expect(await text(box, '/data/note')).toBe('later');
      await rejects(others.root.write('/then/note', Buffer.from('no')), 'permission_denied');
    },
  );

  suite.case('a snapshot is not mounted to be written', ['volumes', 'volumeCopies'], async () => {
    const snapshot = await volume({ from: await volume(), readOnly: true });
    await rejects(suite.backend.validate(suite.spec({ mounts: [at(snapshot)] })), 'failed_precondition');
    await rejects(
      platformVolumes().createVolume(volumeId(), { sizeBytes: null, readOnly: true }),
      'invalid_argument',
    );
  });

  suite.case('volumes are removed in any order', ['volumes', 'volumeCopies'], async () => {
    const id = await volume();
    const snapshot = await volume({ from: id, readOnly: true });
    const clone = await volume({ from: id });
    const further = await volume({ from: clone, readOnly: true });
    const last = await volume({ from: snapshot });
    for (const each of [id, clone, snapshot, further, last]) {
      await platformVolumes().removeVolume(each);
      await rejects(platformVolumes().inspectVolume(each), 'not_found');
      await platformVolumes().removeVolume(each);
    }
    expect(await platformVolumes().listVolumes()).toEqual([]);
  });

  suite.case('one that a sandbox mounts is not removed', ['volumes'], async () => {
    const id = await volume();
    const box = await suite.box({ mounts: [at(id)] });
    const error = await rejects(platformVolumes().removeVolume(id), 'failed_precondition');
    expect(error.details).toMatchObject({ sandboxes: [box.id] });
    await suite.backend.stop(box.id, { graceMs: 500 });
    await rejects(platformVolumes().removeVolume(id), 'failed_precondition');
    await suite.backend.remove(box.id);
    await platformVolumes().removeVolume(id);
    await rejects(suite.backend.validate(suite.spec({ mounts: [at(id)] })), 'not_found');
  });

  suite.case('the same id in the same way is the same volume', ['volumes'], async () => {
    const id = await volume();
    const again = await platformVolumes().createVolume(id, { sizeBytes: null });
    expect(again.id).toBe(id);
    expect((await platformVolumes().listVolumes()).map((each) => each.id)).toEqual([id]);
    if (suite.capabilities.abilities.volumeSize)
      await rejects(platformVolumes().createVolume(id, { sizeBytes: 64 * MiB }), 'already_exists');
    await rejects(
      platformVolumes().createVolume('vol_no' as VolumeId, { sizeBytes: null }),
      'invalid_argument',
    );
    await rejects(platformVolumes().inspectVolume(newId('vol')), 'not_found');
  });

  suite.case('it travels as a tar archive', ['volumes', 'volumeArchives'], async () => {
    const id = await volume();
    const box = await suite.box({ mounts: [at(id)] });
    await box.write('/data/dir/note', 'packed');
    await box.files.symlink('/data/link', 'dir/note');
    const archive = await gather(platformVolumes().exportVolume(id));
    const names = execFileSync('tar', ['-t'], { input: archive, encoding: 'utf8' }).trim().split('\n');
    expect(
      names
        .map((name) => name.replace(/^\.\//, '').replace(/\/$/, ''))
        .filter(Boolean)
        .sort(),
    ).toEqual(['dir', 'dir/note', 'link']);
    const copy = volumeId();
    await platformVolumes().importVolume(copy, { sizeBytes: null }, pieces(archive));
    const other = await suite.box({ mounts: [at(copy)] });
    expect(await text(other, '/data/link')).toBe('packed');
    await other.write('/data/dir/note', 'own');
    expect(await text(box, '/data/dir/note')).toBe('packed');
  });

  suite.case('a damaged or hostile archive leaves nothing', ['volumes', 'volumeArchives'], async () => {
    const id = await volume();
    const box = await suite.box({ mounts: [at(id)] });
    await box.write('/data/note', 'x'.repeat(5000));
    const archive = await gather(platformVolumes().exportVolume(id));
    const before = await platformVolumes().listVolumes();
    const refused = async (bytes: Uint8Array) =>
      rejects(
        platformVolumes().importVolume(volumeId(), { sizeBytes: null }, pieces(bytes)),
        'invalid_argument',
      );
    await refused(archive.subarray(0, 2000));
    await refused(Buffer.alloc(4096, 'no archive'));
    const escape = execFileSync('tar', ['-cP', '--transform=s,^.*passwd$,../../../passwd,', '/etc/passwd']);
    await refused(escape);
    expect(await platformVolumes().listVolumes()).toEqual(before);
  });

  suite.case('a rollback and a clone leave it alone', ['volumes', 'snapshots'], async () => {
    const id = await volume();
    const mounts = [at(id)];
    const box = await suite.box({ mounts });
    await box.write('/home/user/own', 'one');
    await box.write('/data/shared', 'one');
    const snapshot = await suite.snapshot(box.id);
    await box.write('/home/user/own', 'two');
    await box.write('/data/shared', 'two');
    await suite.snapshots.rollback(box.id, snapshot);
    const back = await suite.wake(box.id, { mounts });
    expect(await text(back, '/home/user/own')).toBe('one');
    expect(await text(back, '/data/shared')).toBe('two');
    const child = await suite.clone(snapshot, { mounts });
    expect(await text(child, '/data/shared')).toBe('two');
    await child.write('/data/shared', 'three');
    expect(await text(back, '/data/shared')).toBe('three');
    for await (const change of suite.snapshots.changes(snapshot, await suite.snapshot(back.id)))
      expect(change.path).not.toMatch(/^\/data\/./);
  });

  suite.case('processes go on with it after a hibernation', ['volumes', 'memorySnapshots'], async () => {
    const id = await volume();
    const mounts = [at(id)];
    const box = await suite.box({ mounts });
    const other = await suite.box({ mounts });
    await box.write('/data/log', 'one\n');
    await box.start(
      'exec 3>>/data/log; while :; do [ -e /tmp/go ] && { echo two >&3; rm /tmp/go; }; sleep 0.1; done',
    );
    await suite.ability('memorySnapshots').hibernate(box.id);
    await other.write('/data/other', 'meanwhile');
    const awake = await suite.wake(box.id, { mounts });
    expect(await text(awake, '/data/other')).toBe('meanwhile');
    await awake.write('/tmp/go', '');
    await until('the process has written', async () => (await text(other, '/data/log')) === 'one\ntwo\n');
  });

  suite.case('memory is mounted with a size', ['tmpfs'], async () => {
    const tmpfs = (more: object): Mount => ({
      type: 'tmpfs',
      path: '/scratch',
      mode: '1777',
      noexec: false,
      ...more,
    });
    const mounts = [
      tmpfs({ sizeBytes: 4 * MiB }),
      tmpfs({ path: '/var/private', mode: '700', noexec: true }),
    ];
    const box = await suite.box({ mounts });
    await box.write('/scratch/small', Buffer.alloc(MiB, 1));
    await rejects(box.files.write('/scratch/large', Buffer.alloc(8 * MiB, 1)), 'resource_exhausted');
    if (suite.capabilities.abilities.users)
      await rejects(box.files.write('/var/private/x', Buffer.from('x')), 'permission_denied');
    if (suite.capabilities.abilities.processes && suite.capabilities.abilities.users) {
      const line = "printf '#!/bin/sh\\necho ran' > /var/private/p; chmod 700 /var/private/p; /var/private/p";
      expect((await box.run(line, { user: box.strongest })).exitCode).not.toBe(0);
    }
    await suite.backend.stop(box.id, { graceMs: 500 });
    const again = await suite.wake(box.id, { mounts });
    await rejects(again.read('/scratch/small'), 'not_found');
  });

  suite.case('directories of the host are refused unless they are allowed', [], async () => {
    const mounts: Mount[] = [{ type: 'host', source: '/etc', path: '/mnt/etc', readOnly: true }];
    await rejects(suite.backend.validate(suite.spec({ mounts })), 'permission_denied', 'unsupported');
  });
}

async function* pieces(bytes: Uint8Array): AsyncIterable<Uint8Array> {
  for (let offset = 0; offset < bytes.length; offset += 10_000) yield bytes.subarray(offset, offset + 10_000);
}
