import { newId } from '@cay/sdk/protocol';
import { expect } from 'vitest';
import { gather } from './box.ts';
import { rejects, type Suite } from './suite.ts';

export function snapshotCases(suite: Suite): void {
  const textIn = async (snapshot: `snap_${string}`, path: string) =>
    (await gather(suite.snapshots.snapshotFiles(snapshot).read(path))).toString();

  suite.case('a snapshot of what runs keeps the files, and the sandbox goes on', ['snapshots'], async () => {
    const box = await suite.box();
    const path = await box.write('note', 'then');
    const running = await box.start(['cat'], { stdin: true });
    const snapshot = suite.snapshotId();
    const facts = await suite.snapshots.snapshot(box.id, snapshot);
    expect(facts).toMatchObject({
      id: snapshot,
      sandbox: box.id,
      memory: false,
      spec: { template: suite.spec().template },
    });
    expect(await suite.backend.observe(box.id)).toMatchObject({ phase: 'ready', incarnation: 1 });
    const guest = await suite.backend.connect(box.id);
    expect((await guest.commands()).find(({ id }) => id === running.id)).toMatchObject({ pid: running.pid });
    await guest.files('user').write(path, Buffer.from('now'));
    expect(await textIn(snapshot, path)).toBe('then');
    expect((await gather((await guest.files('user').read(path)).data)).toString()).toBe('now');
  });

  suite.case('a snapshot has what a command had written before it ended', ['snapshots'], async () => {
    const box = await suite.box();
    await box.run(`echo from a command > ${box.dir}/note`);
    expect(await textIn(await suite.snapshot(box.id), `${box.dir}/note`)).toBe('from a command\n');
  });

  suite.case('a snapshot of what is stopped keeps the files and starts nothing', ['snapshots'], async () => {
    const box = await suite.box();
    const path = await box.write('note', 'kept');
    await suite.backend.stop(box.id, { graceMs: 100 });
    expect(await textIn(await suite.snapshot(box.id), path)).toBe('kept');
    expect((await suite.backend.observe(box.id)).phase).toBe('stopped');
  });

  suite.case('a snapshot of what has failed keeps the files', ['snapshots'], async ({ skip }) => {
    if (!suite.platform.crash) return skip('the platform cannot make a sandbox fail');
    const box = await suite.box();
    const path = await box.write('note', 'kept');
    await suite.platform.crash(box.id);
    await expect
      .poll(async () => (await suite.backend.observe(box.id)).phase, { timeout: 10_000 })
      .toBe('failed');
    const snapshot = await suite.snapshot(box.id);
    expect(await textIn(snapshot, path)).toBe('kept');
    expect((await suite.clone(snapshot)).id).not.toBe(box.id);
  });

  suite.case('the same snapshot of the same sandbox is not taken twice', ['snapshots'], async () => {
    const box = await suite.box();
    const path = await box.write('note', 'first');
    const snapshot = await suite.snapshot(box.id);
    await box.write('note', 'second');
    expect(await suite.snapshots.snapshot(box.id, snapshot)).toMatchObject({
      id: snapshot,
      sandbox: box.id,
    });
    expect(await textIn(snapshot, path)).toBe('first');
    expect((await suite.snapshots.snapshots()).filter(({ id }) => id === snapshot)).toHaveLength(1);
  });

  suite.case(
    "a snapshot under the id of another sandbox's rejects already_exists",
    ['snapshots'],
    async () => {
      const [one, other] = [await suite.box(), await suite.box()];
      const path = await one.write('note', 'one');
      const snapshot = await suite.snapshot(one.id);
      await rejects(suite.snapshots.snapshot(other.id, snapshot), 'already_exists');
      expect(await textIn(snapshot, path)).toBe('one');
    },
  );

  suite.case(
    'a snapshot of what is absent rejects not_found, and one without a proper id invalid_argument',
    ['snapshots'],
    async () => {
      await rejects(suite.snapshots.snapshot(newId('sbx'), newId('snap')), 'not_found');
      const box = await suite.box();
      for (const id of [
        'snap_../../../etc/passwd',
        'snap_',
        '',
        '../x',
        `snap_${'a'.repeat(21)}`,
        newId('sbx'),
      ]) {
        await rejects(suite.snapshots.snapshot(box.id, id as `snap_${string}`), 'invalid_argument');
        await rejects(suite.snapshots.removeSnapshot(id as `snap_${string}`), 'invalid_argument');
      }
      expect(await suite.snapshots.snapshots()).toEqual([]);
    },
  );

  suite.case('a snapshot that is given up leaves nothing', ['snapshots'], async () => {
    const box = await suite.box();
    const snapshot = suite.snapshotId();
    await rejects(suite.snapshots.snapshot(box.id, snapshot, { signal: AbortSignal.abort() }), 'cancelled');
    expect(await suite.snapshots.snapshots()).toEqual([]);
    expect((await box.run(['true'])).exitCode).toBe(0);
  });

  suite.case(
    'a snapshot with memory is unsupported where processes cannot be kept',
    ['snapshots'],
    async ({ skip }) => {
      if (suite.capabilities.abilities.memorySnapshots) return skip('this backend keeps processes');
      const box = await suite.box();
      const snapshot = suite.snapshotId();
      await rejects(suite.snapshots.snapshot(box.id, snapshot, { memory: true }), 'unsupported');
      expect(await suite.snapshots.snapshots()).toEqual([]);
      await suite.snapshots.snapshot(box.id, snapshot);
      const id = suite.id();
      await rejects(
        suite.snapshots.clone(id, suite.spec(), snapshot, { memory: true }),
        'unsupported',
        'failed_precondition',
      );
      expect((await suite.backend.observe(id)).phase).toBe('absent');
      await rejects(
        suite.snapshots.rollback(box.id, snapshot, { memory: true }),
        'unsupported',
        'failed_precondition',
      );
      expect((await box.run(['true'])).exitCode).toBe(0);
    },
  );

  suite.case(
    'snapshots() has every one until it is removed, and removing what is absent is done',
    ['snapshots'],
    async () => {
      const box = await suite.box();
      const [one, other] = [await suite.snapshot(box.id), await suite.snapshot(box.id)];
      const ids = async () => (await suite.snapshots.snapshots()).map(({ id }) => id).sort();
      expect(await ids()).toEqual([one, other].sort());
      await suite.snapshots.removeSnapshot(one);
      await suite.snapshots.removeSnapshot(one);
      await suite.snapshots.removeSnapshot(newId('snap'));
      expect(await ids()).toEqual([other]);
      await rejects(gather(suite.snapshots.snapshotFiles(one).read('/etc/passwd')), 'not_found');
      expect((await box.run(['true'])).exitCode).toBe(0);
    },
  );

  suite.case('a snapshot outlives its sandbox', ['snapshots'], async () => {
    const box = await suite.box();
    const path = await box.write('note', 'kept');
    const snapshot = await suite.snapshot(box.id);
    await suite.backend.remove(box.id);
    expect(await textIn(snapshot, path)).toBe('kept');
    expect((await (await suite.clone(snapshot)).read(path)).toString()).toBe('kept');
  });

  suite.case('a snapshot is not removed while a clone stands on it', ['snapshots'], async () => {
    const box = await suite.box();
    const snapshot = await suite.snapshot(box.id);
    const clone = await suite.clone(snapshot);
    const error = await rejects(suite.snapshots.removeSnapshot(snapshot), 'failed_precondition');
    expect(error.details).toMatchObject({ sandboxes: [clone.id] });
    await suite.backend.stop(clone.id, { graceMs: 100 });
    await rejects(suite.snapshots.removeSnapshot(snapshot), 'failed_precondition');
    expect((await (await suite.wake(clone.id)).run(['true'])).exitCode).toBe(0);
    await suite.backend.remove(clone.id);
    await suite.snapshots.removeSnapshot(snapshot);
    expect(await suite.snapshots.snapshots()).toEqual([]);
  });

  suite.case(
    'snapshots and clones are found again by the next server',
    ['snapshots', 'survivesRestart'],
    async ({ skip }) => {
      if (!suite.platform.restart) return skip('the platform cannot restart the backend');
      const box = await suite.box();
      const path = await box.write('note', 'kept');
      const snapshot = await suite.snapshot(box.id);
      const clone = suite.id();
      await suite.snapshots.clone(clone, suite.spec(), snapshot);
      await suite.restart();
      expect(await suite.snapshots.snapshots()).toMatchObject([
        { id: snapshot, sandbox: box.id, memory: false },
      ]);
      expect((await suite.backend.observe(clone)).phase).toBe('stopped');
      expect((await (await suite.wake(clone)).read(path)).toString()).toBe('kept');
      await rejects(suite.snapshots.removeSnapshot(snapshot), 'failed_precondition');
    },
  );

  suite.case(
    'many sandboxes are kept and cloned at once, each with its own files',
    ['snapshots'],
    async () => {
      const boxes = await Promise.all(Array.from({ length: 8 }, () => suite.box()));
      const texts = await Promise.all(
        boxes.map(async (box, at) => {
          await box.write('/home/user/who', `${at}`);
          const clone = await suite.clone(await suite.snapshot(box.id));
          return (await clone.run(['cat', '/home/user/who'])).stdout;
        }),
      );
      expect(texts).toEqual(boxes.map((_, at) => `${at}`));
      expect(await suite.snapshots.snapshots()).toHaveLength(boxes.length);
    },
    60_000,
  );
}
