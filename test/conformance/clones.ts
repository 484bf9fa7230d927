import { newId } from '@cay/sdk/protocol';
import { expect } from 'vitest';
import { until } from './box.ts';
import { rejects, type Suite } from './suite.ts';

export function cloneCases(suite: Suite): void {
  suite.case('a clone that is started with it runs when the call resolves', ['snapshots'], async () => {
    const box = await suite.box();
    const path = await box.write('note', 'then');
    const snapshot = await suite.snapshot(box.id);
    const id = suite.id();
    const start = () => suite.snapshots.clone(id, suite.spec(), snapshot, { start: true });
    expect(await start()).toMatchObject({ id, phase: 'ready', incarnation: 1 });
    expect(await start()).toMatchObject({ phase: 'ready', incarnation: 1 });
    expect((await (await suite.wake(id)).read(path)).toString()).toBe('then');
    await suite.backend.stop(id, { graceMs: 100 });
    expect(await start()).toMatchObject({ phase: 'ready', incarnation: 2 });
    const missing = suite.id();
    await rejects(suite.snapshots.clone(missing, suite.spec(), newId('snap'), { start: true }), 'not_found');
    expect((await suite.backend.observe(missing)).phase).toBe('absent');
  });

  suite.case(
    'a clone is stopped at first, has the files, and runs when it is ensured',
    ['snapshots'],
    async () => {
      const box = await suite.box();
      const path = await box.write('note', 'from the parent');
      await box.start(['sleep', '60']);
      const snapshot = await suite.snapshot(box.id);
      const id = suite.id();
      const made = await suite.snapshots.clone(id, suite.spec(), snapshot);
      expect(made).toMatchObject({ id, phase: 'stopped' });
      await rejects(suite.backend.connect(id), 'failed_precondition');
      expect((await suite.backend.list()).map((each) => each.id)).toContain(id);
      const clone = await suite.wake(id);
      expect((await suite.backend.observe(id)).incarnation).toBeGreaterThanOrEqual(
        Math.max(1, made.incarnation),
      );
      expect((await clone.read(path)).toString()).toBe('from the parent');
      expect(await clone.guest.commands()).toEqual([]);
    },
  );

  suite.case(
    'owners, modes, links and attributes are the same in a clone',
    ['snapshots', 'users'],
    async () => {
      const box = await suite.box();
      const at = (name: string) => `${box.dir}/${name}`;
      await box.write('plain', 'x');
      await box.files.chmod(at('plain'), 0o640);
      await box.root.write(at('foreign'), Buffer.from('x'), { mode: 0o4755 });
      await box.root.chown(at('foreign'), '1234:5678');
      await box.files.mkdir(at('closed'), { mode: 0o700 });
      await box.files.symlink(at('link'), 'plain');
      await box.files.symlink(at('dangling'), '/nowhere/at all');
      if (suite.capabilities.abilities.xattrs)
        await box.files.xattrs(at('plain'), { color: Buffer.from('blue') });
      const clone = await suite.clone(await suite.snapshot(box.id));
      for (const name of ['', '/plain', '/foreign', '/closed', '/link', '/dangling']) {
        const [after, before] = [
          await clone.root.stat(`${box.dir}${name}`),
          await box.root.stat(`${box.dir}${name}`),
        ];
        const { type, mode, uid, gid, target } = before;
        expect(after).toMatchObject({ type, mode, uid, gid, ...(target !== undefined && { target }) });
        if (type !== 'directory') expect(after.sizeBytes).toBe(before.sizeBytes);
        // A kernel of its own may keep the time of its own clock, and write down that of the host's.
        expect(Math.abs(after.modifiedAtMs - before.modifiedAtMs)).toBeLessThan(1000);
      }
      if (!suite.capabilities.abilities.xattrs || !suite.capabilities.abilities.snapshotXattrs) return;
      expect(Buffer.from((await clone.files.xattrs(at('plain')))['color']!).toString()).toBe('blue');
    },
  );

  suite.case('parent and clones do not see what the others do', ['snapshots'], async () => {
    const box = await suite.box();
    const path = await box.write('note', 'common');
    const snapshot = await suite.snapshot(box.id);
    const [one, other] = await Promise.all([suite.clone(snapshot), suite.clone(snapshot)]);
    await one.files.write(path, Buffer.from(' and one'), { append: true });
    await box.files.write(path, Buffer.from(' and the parent'), { append: true });
    await box.write(`${box.dir}/later`, '');
    expect((await other.read(path)).toString()).toBe('common');
    expect((await one.read(path)).toString()).toBe('common and one');
    expect((await box.read(path)).toString()).toBe('common and the parent');
    await rejects(one.files.stat(`${box.dir}/later`), 'not_found');
    await one.files.remove(path);
    expect((await (await suite.clone(snapshot)).read(path)).toString()).toBe('common');
  });

  suite.case(
    'a clone of a clone has what both have written, whichever of them is gone',
    ['snapshots'],
    async () => {
      const box = await suite.box();
      const first = await box.write('first', '1');
      const one = await suite.snapshot(box.id);
      const child = await suite.clone(one);
      await suite.backend.remove(box.id);
      const second = await child.write('second', '2');
      const two = await suite.snapshot(child.id);
      await suite.backend.remove(child.id);
      await suite.snapshots.removeSnapshot(one);
      const grandchild = await suite.clone(two);
      expect((await grandchild.read(first)).toString()).toBe('1');
      expect((await grandchild.read(second)).toString()).toBe('2');
    },
  );

  suite.case(
    'a clone has the command, the environment, the user and the workdir of its own spec',
    ['snapshots'],
    async () => {
      const box = await suite.box({ env: { WHO: 'parent' } });
      const snapshot = await suite.snapshot(box.id);
      const user = suite.strongest;
      const [path, uid] = user === 'root' ? ['/root/told', 0] : ['/home/user/told', 1000];
      const own = {
        env: { WHO: 'clone' },
        workdir: '/tmp',
        user,
        cmd: ['sh', '-c', `echo $WHO > ${path}; pwd >> ${path}; id -u >> ${path}; echo end >> ${path}`],
      };
      const clone = await suite.clone(snapshot, own);
      const told = async () => {
        const { data } = await clone.root.read(path);
        let text = '';
        for await (const part of data) text += Buffer.from(part).toString();
        return text;
      };
      await until('the command has run', () =>
        told().then(
          (text) => text.includes('end'),
          () => false,
        ),
      );
      expect(await told()).toBe(`clone\n/tmp\n${uid}\nend\n`);
      await rejects(box.root.stat(path), 'not_found');
    },
  );

  suite.case('a clone has the limits of its own spec', ['snapshots', 'memoryLimit'], async () => {
    const box = await suite.box();
    const memoryBytes = 192 * 1024 * 1024;
    const clone = await suite.clone(await suite.snapshot(box.id), { limits: { memoryBytes } });
    expect((await suite.backend.stats(clone.id)).memoryLimitBytes).toBe(memoryBytes);
    expect((await suite.backend.stats(box.id)).memoryLimitBytes).not.toBe(memoryBytes);
  });

  suite.case('a clone may write no more than its own disk holds', ['snapshots', 'diskLimit'], async () => {
    const box = await suite.box();
    const clone = await suite.clone(await suite.snapshot(box.id), {
      limits: { diskBytes: 32 * 1024 * 1024 },
    });
    await rejects(
      clone.files.write(`${clone.dir}/big`, Buffer.alloc(48 * 1024 * 1024, 1)),
      'resource_exhausted',
    );
    await box.files.write(`${box.dir}/big`, Buffer.alloc(48 * 1024 * 1024, 1));
  });

  suite.case('a clone can have a read-only root', ['snapshots', 'readOnlyRoot'], async () => {
    const box = await suite.box();
    const path = await box.write('note', 'kept');
    const id = suite.id();
    await suite.snapshots.clone(id, suite.spec({ readOnlyRoot: true }), await suite.snapshot(box.id));
    await suite.backend.ensure(id, suite.spec({ readOnlyRoot: true }));
    const files = (await suite.backend.connect(id)).files('user');
    await rejects(files.write(path, Buffer.from('x')), 'permission_denied');
    expect((await files.stat(path)).sizeBytes).toBe(4);
  });

  suite.case('the same clone of the same snapshot is done already', ['snapshots'], async () => {
    const box = await suite.box();
    const snapshot = await suite.snapshot(box.id);
    const clone = await suite.clone(snapshot);
    const path = await clone.write('own', 'own');
    expect(await suite.snapshots.clone(clone.id, suite.spec(), snapshot)).toMatchObject({
      id: clone.id,
      phase: 'ready',
    });
    expect((await clone.read(path)).toString()).toBe('own');
  });

  suite.case('a clone under an id that is taken rejects already_exists', ['snapshots'], async () => {
    const box = await suite.box();
    const [one, other] = [await suite.snapshot(box.id), await suite.snapshot(box.id)];
    const clone = await suite.clone(one);
    await rejects(suite.snapshots.clone(clone.id, suite.spec(), other), 'already_exists');
    await rejects(
      suite.snapshots.clone(clone.id, suite.spec({ env: { OTHER: '1' } }), one),
      'already_exists',
    );
    await rejects(suite.snapshots.clone(box.id, suite.spec(), one), 'already_exists');
    expect((await clone.run(['true'])).exitCode).toBe(0);
    expect((await box.run(['true'])).exitCode).toBe(0);
  });

  suite.case('ensure() of a clone with another spec rejects already_exists', ['snapshots'], async () => {
    const box = await suite.box();
    const id = suite.id();
    await suite.snapshots.clone(id, suite.spec(), await suite.snapshot(box.id));
    await rejects(suite.backend.ensure(id, suite.spec({ env: { OTHER: '1' } })), 'already_exists');
  });

  suite.case('a clone of what is unknown rejects not_found and leaves nothing', ['snapshots'], async () => {
    const id = suite.id();
    await rejects(suite.snapshots.clone(id, suite.spec(), newId('snap')), 'not_found');
    await rejects(
      suite.snapshots.clone(id, suite.spec({ runtime: 'no-such-runtime' }), newId('snap')),
      'not_found',
    );
    await rejects(
      suite.snapshots.clone(id, suite.spec(), 'snap_../../etc' as `snap_${string}`),
      'invalid_argument',
      'not_found',
    );
    expect((await suite.backend.observe(id)).phase).toBe('absent');
  });
}
