import { newId } from '@cay/sdk/protocol';
import { expect } from 'vitest';
import { all, gather, inPieces, noise } from './box.ts';
import { rejects, type Suite } from './suite.ts';

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
    if (suite.capabilities.abilities.xattrs) await box.files.xattrs(at('plain'), { color: Buffer.from([0, 255, 10]) });
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
    const system = (await clone.root.stat('/etc/passwd')).uid;
    expect(system).toBe(0);
    if (suite.capabilities.abilities.xattrs) {
      expect(Buffer.from((await clone.files.xattrs(`${box.dir}/plain`))['color']!)).toEqual(Buffer.from([0, 255, 10]));
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

  suite.case('an archive that is cut off anywhere is refused whole', ['snapshots'], async () => {
    const { snapshot, archive } = await archived();
    const lengths = [0, 1, 100, 511, 512, 700, 2000, Math.floor(archive.length / 2), archive.length - 600, archive.length - 1];
    for (const length of lengths.filter((each) => each >= 0 && each < archive.length)) {
      const imported = suite.snapshotId();
      await rejects(suite.snapshots.importSnapshot(imported, inPieces(archive.subarray(0, length), 4096)), 'invalid_argument');
      expect(await ids()).toEqual([snapshot]);
    }
  });

  suite.case('an archive with a wrong byte is refused whole', ['snapshots'], async () => {
    const { snapshot, archive } = await archived();
    for (const at of [0, 40, 600, Math.floor(archive.length / 3), Math.floor(archive.length / 2), archive.length - 20]) {
      const damaged = Buffer.from(archive);
      damaged[at]! ^= 0x55;
      await rejects(suite.snapshots.importSnapshot(suite.snapshotId(), inPieces(damaged, 4096)), 'invalid_argument');
      expect(await ids()).toEqual([snapshot]);
    }
    const longer = Buffer.concat([archive, noise(3000)]);
    await rejects(suite.snapshots.importSnapshot(suite.snapshotId(), inPieces(longer, 4096)), 'invalid_argument');
    await rejects(suite.snapshots.importSnapshot(suite.snapshotId(), inPieces(noise(20_000, 7), 4096)), 'invalid_argument');
    expect(await ids()).toEqual([snapshot]);
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
    await expect(suite.snapshots.importSnapshot(suite.snapshotId(), slow(), { signal: aborter.signal })).rejects.toThrow();
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
