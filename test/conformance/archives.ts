import { CayError, newId } from '@cay/sdk/protocol';
import { expect } from 'vitest';
import { writeEnvelope } from '../../server/src/host/archives/envelope.ts';
import { all, gather, inPieces, noise } from './box.ts';
import { holdCounter, startCounter } from './counter.ts';
import { rejects, type Suite } from './suite.ts';
import { tarOf, type TarEntry } from './tar-entry.ts';

export function archiveCases(suite: Suite): void {
  const ids = async () => (await suite.snapshots.snapshots()).map(({ id }) => id);

  /** A sandbox with a file of every kind, and the archive of its snapshot. */
  async function archived() {
    const box = await suite.box();
    const at = (name: string) => `${box.dir}/${name}`;
    await box.write('plain', noise(70_001));
    await box.write('empty', '');
    await box.write(`${'long-directory-name/'.repeat(12)}${'x'.repeat(200)}`, 'far');
    await box.write('ünïcödé 世界', 'text');
    await box.write('line\nbreak', 'text');
    await box.write('x'.repeat(255), 'text');
    await box.files.write(at('tool'), Buffer.from('#!'), { mode: 0o750 });
    await box.files.mkdir(at('hollow'), { mode: 0o700 });
    await box.files.symlink(at('link'), 'plain');
    await box.files.symlink(at('dangling'), '/nowhere/../at all');
    if (suite.capabilities.abilities.users) {
      await box.root.write(at('foreign'), Buffer.from('x'), { mode: 0o4755 });
      await box.root.chown(at('foreign'), '1234:5678');
      await box.root.chmod(at('foreign'), 0o4755);
    }
    if (suite.capabilities.abilities.xattrs)
      await box.files.xattrs(at('plain'), { color: Buffer.from([0, 255, 10]) });
    if (suite.capabilities.abilities.processes) await box.run(['ln', at('plain'), at('twin')]);
    const snapshot = await suite.snapshot(box.id);
    return { box, snapshot, archive: await gather(suite.snapshots.exportSnapshot(snapshot)) };
  }

  suite.case('a snapshot that was exported and imported is the same snapshot', ['snapshots'], async () => {
    const { box, snapshot, archive } = await archived();
    const spec = (await suite.snapshots.snapshots())[0]?.spec;
    const imported = suite.snapshotId();
    const facts = await suite.snapshots.importSnapshot(imported, inPieces(archive, 9999));
    expect(facts).toMatchObject({ id: imported, sandbox: box.id, memory: false, spec });
    expect(await ids()).toContain(imported);
    expect(await all(suite.snapshots.changes(snapshot, imported))).toEqual([]);
    const clone = await suite.clone(imported);
    const tree = async (of: typeof box) => {
      const infos = await all(of.root.list(box.dir, { depth: 20 }));
      return infos.map(({ path, type, mode, uid, gid, target, sizeBytes }) => [
        path,
        type,
        mode,
        uid,
        gid,
        target,
        type === 'file' && sizeBytes,
      ]);
    };
    expect(await tree(clone)).toEqual(await tree(box));
    expect((await clone.read(`${box.dir}/plain`)).equals(noise(70_001))).toBe(true);
    if (suite.capabilities.abilities.users) expect((await clone.root.stat('/etc/passwd')).uid).toBe(0);
    if (suite.capabilities.abilities.xattrs && suite.capabilities.abilities.snapshotXattrs) {
      expect(Buffer.from((await clone.files.xattrs(`${box.dir}/plain`))['color']!)).toEqual(
        Buffer.from([0, 255, 10]),
      );
    }
    if (suite.capabilities.abilities.processes) {
      expect((await clone.run(`stat -c %h ${box.dir}/plain; stat -c %Y ${box.dir}/plain`)).stdout).toBe(
        `2\n${Math.floor((await box.files.stat(`${box.dir}/plain`)).modifiedAtMs / 1000)}\n`,
      );
    }
  });

  suite.case('an archive outlives the snapshot and the sandbox that it is of', ['snapshots'], async () => {
    const { box, snapshot, archive } = await archived();
    await suite.backend.remove(box.id);
    await suite.snapshots.removeSnapshot(snapshot);
    await suite.snapshots.importSnapshot(snapshot, inPieces(archive, 1 << 20));
    const clone = await suite.clone(snapshot);
    expect((await clone.read(`${box.dir}/tool`)).toString()).toBe('#!');
    expect((await clone.run(['true'])).exitCode).toBe(0);
  });

  suite.case('an archive of a snapshot with memory has the processes too', ['memorySnapshots'], async () => {
    const box = await suite.box();
    const counter = await startCounter(box);
    const first = await counter.ask('one');
    const snapshot = await suite.snapshot(box.id, { memory: true });
    const seal = {
      sign: (digest: string) => `of-${digest}`,
      verify: (digest: string, by: string) => by === `of-${digest}`,
    };
    const archive = await gather(suite.snapshots.exportSnapshot(snapshot, { seal }));
    await suite.backend.remove(box.id);
    await suite.snapshots.removeSnapshot(snapshot);
    const imported = suite.snapshotId();
    const facts = await suite.snapshots.importSnapshot(imported, inPieces(archive, 1 << 20), { seal });
    expect(facts).toMatchObject({ id: imported, memory: true, memoryBytes: expect.any(Number) });
    const child = await suite.clone(imported, undefined, { memory: true });
    expect(await (await holdCounter(child.guest, counter)).ask('two')).toEqual({ count: 2, pid: first.pid });
    const damaged = Buffer.from(archive);
    damaged[archive.length - 5000]! ^= 0x55;
    await rejects(
      suite.snapshots.importSnapshot(suite.snapshotId(), inPieces(damaged, 1 << 20)),
      'invalid_argument',
    );
    expect(await ids()).toEqual([imported]);
    // Memory without a known signature is left out, and the files are imported.
    const other = { ...seal, verify: () => false };
    for (const options of [{}, { seal: other }]) {
      const files = suite.snapshotId();
      const found = await suite.snapshots.importSnapshot(files, inPieces(archive, 1 << 20), options);
      expect(found).toMatchObject({ memory: false, memoryDropped: 'foreign' });
    }
    const trusted = await suite.snapshots.importSnapshot(suite.snapshotId(), inPieces(archive, 1 << 20), {
      foreignMemory: true,
    });
    expect(trusted).toMatchObject({ memory: true });
  });

  suite.case('an import writes no more bytes than `admit` allows', ['snapshots'], async () => {
    const { snapshot, archive } = await archived();
    let admitted = 0;
    const admit = (bytes: number) => {
      if ((admitted += bytes) > 1000) throw new CayError('resource_exhausted', 'enough');
    };
    await rejects(
      suite.snapshots.importSnapshot(suite.snapshotId(), inPieces(archive, 4096), { admit }),
      'resource_exhausted',
    );
    expect(await ids()).toEqual([snapshot]);
  });

  suite.case('an archive that is cut off anywhere is refused whole', ['snapshots'], async () => {
    const { snapshot, archive } = await archived();
    const lengths = [
      0,
      1,
      100,
      511,
      512,
      700,
      2000,
      Math.floor(archive.length / 2),
      archive.length - 600,
      archive.length - 1,
    ];
    for (const length of lengths.filter((each) => each >= 0 && each < archive.length)) {
      const imported = suite.snapshotId();
      await rejects(
        suite.snapshots.importSnapshot(imported, inPieces(archive.subarray(0, length), 4096)),
        'invalid_argument',
      );
      expect(await ids()).toEqual([snapshot]);
    }
  });

  suite.case('an archive with a wrong byte is refused whole', ['snapshots'], async () => {
    const { snapshot, archive } = await archived();
    for (const at of [
      0,
      40,
      600,
      Math.floor(archive.length / 3),
      Math.floor(archive.length / 2),
      archive.length - 20,
    ]) {
      const damaged = Buffer.from(archive);
      damaged[at]! ^= 0x55;
      await rejects(
        suite.snapshots.importSnapshot(suite.snapshotId(), inPieces(damaged, 4096)),
        'invalid_argument',
      );
      expect(await ids()).toEqual([snapshot]);
    }
    const longer = Buffer.concat([archive, noise(3000)]);
    await rejects(
      suite.snapshots.importSnapshot(suite.snapshotId(), inPieces(longer, 4096)),
      'invalid_argument',
    );
    await rejects(
      suite.snapshots.importSnapshot(suite.snapshotId(), inPieces(noise(20_000, 7), 4096)),
      'invalid_argument',
    );
    expect(await ids()).toEqual([snapshot]);
  });

  suite.case('an archive whose names lead elsewhere is refused whole', ['snapshots'], async ({ skip }) => {
    const { runtime } = await suite.backend.observe((await suite.box()).id);
    const forged = (entries: TarEntry[]) => {
      const facts = { snapshot: newId('snap'), sandbox: newId('sbx'), spec: suite.spec(), runtime };
      const manifest = Buffer.from(
        JSON.stringify({ format: 'cay-snapshot', version: 1, compression: 'none', ...facts }),
      );
      return writeEnvelope(manifest, [{ name: 'tree', content: inPieces(tarOf(entries), 1000) }]);
    };
    const harmless = await suite.snapshots
      .importSnapshot(suite.snapshotId(), forged([{ name: 'file', content: 'x' }]))
      .catch((error: unknown) => {
        expect(error).toMatchObject({ code: 'invalid_argument' });
        return skip('this backend has archives of a form of its own');
      });
    const link = { name: 'way', type: '2', link: '/tmp' };
    for (const entries of [
      [{ name: '../escaped', content: 'x' }],
      [{ name: 'a/../../escaped', content: 'x' }],
      [link, { name: 'way/escaped', content: 'x' }],
      [
        { name: 'up', type: '2', link: '..' },
        { name: 'up/up/escaped', content: 'x' },
      ],
      [{ name: 'leak', type: '1', link: '../../../../etc/passwd' }],
      [{ name: 'leak', type: '1', link: '/etc/passwd' }],
      [link, { name: 'leak', type: '1', link: 'way/x' }],
      [{ name: 'mem', type: '3' }],
      [
        { name: 'file', content: 'x' },
        { name: 'file/below', content: 'x' },
      ],
    ]) {
      const outcome = suite.snapshots.importSnapshot(suite.snapshotId(), forged(entries));
      expect((await rejects(outcome, 'invalid_argument')).message).not.toContain('/tmp/cay');
      expect(await ids()).toEqual([harmless.id]);
    }
  });

  suite.case('an import whose source fails leaves nothing', ['snapshots'], async () => {
    const { snapshot, archive } = await archived();
    async function* failing() {
      yield archive.subarray(0, 3000);
      throw new Error('the line was cut');
    }
    await expect(suite.snapshots.importSnapshot(suite.snapshotId(), failing())).rejects.toThrow();
    const aborter = new AbortController();
    async function* slow() {
      yield archive.subarray(0, 3000);
      aborter.abort();
      yield archive.subarray(3000);
    }
    await expect(
      suite.snapshots.importSnapshot(suite.snapshotId(), slow(), { signal: aborter.signal }),
    ).rejects.toThrow();
    expect(await ids()).toEqual([snapshot]);
  });

  suite.case('an export of what is unknown rejects not_found', ['snapshots'], async () => {
    await rejects(gather(suite.snapshots.exportSnapshot(newId('snap'))), 'not_found');
  });

  suite.case('an export can be given up', ['snapshots'], async () => {
    const { snapshot } = await archived();
    for await (const _ of suite.snapshots.exportSnapshot(snapshot)) break;
    await suite.snapshots.removeSnapshot(snapshot);
    expect(await ids()).toEqual([]);
  });
}
