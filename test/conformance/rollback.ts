import { newId } from '@cay/sdk/protocol';
import { expect } from 'vitest';
import { drain, within } from './box.ts';
import { rejects, type Suite } from './suite.ts';

export function rollbackCases(suite: Suite): void {
  suite.case(
    'a rollback of what runs puts the files back and is another incarnation',
    ['snapshots'],
    async () => {
      const box = await suite.box();
      const kept = await box.write('kept', 'then');
      const removed = await box.write('removed', 'then');
      const snapshot = await suite.snapshot(box.id);
      await box.write('kept', 'later');
      await box.files.remove(removed);
      const added = await box.write('added', 'later');
      const running = drain(await box.start(['sleep', '60']));
      const after = await suite.snapshots.rollback(box.id, snapshot);
      expect(after).toMatchObject({ id: box.id, phase: 'ready' });
      expect(after.incarnation).toBeGreaterThan(1);
      expect((await within(5000, 'the end', running)).end.kind).toBe('lost');
      await rejects(box.guest.commands(), 'unavailable');
      const back = await suite.wake(box.id);
      expect((await suite.backend.observe(box.id)).incarnation).toBe(after.incarnation);
      expect(await back.guest.commands()).toEqual([]);
      expect((await back.read(kept)).toString()).toBe('then');
      expect((await back.read(removed)).toString()).toBe('then');
      await rejects(back.files.stat(added), 'not_found');
    },
  );

  suite.case('a rollback of what is stopped is stopped', ['snapshots'], async () => {
    const box = await suite.box();
    const path = await box.write('note', 'then');
    const snapshot = await suite.snapshot(box.id);
    await box.write('note', 'later');
    await suite.backend.stop(box.id, { graceMs: 100 });
    expect(await suite.snapshots.rollback(box.id, snapshot)).toMatchObject({ phase: 'stopped' });
    const back = await suite.wake(box.id);
    expect((await back.read(path)).toString()).toBe('then');
    expect((await suite.backend.observe(box.id)).incarnation).toBeGreaterThan(1);
  });

  suite.case(
    'a rollback of what has failed is stopped, and can run again',
    ['snapshots'],
    async ({ skip }) => {
      if (!suite.platform.crash) return skip('the platform cannot make a sandbox fail');
      const box = await suite.box();
      const path = await box.write('note', 'then');
      const snapshot = await suite.snapshot(box.id);
      await suite.platform.crash(box.id);
      await expect
        .poll(async () => (await suite.backend.observe(box.id)).phase, { timeout: 10_000 })
        .toBe('failed');
      expect((await suite.snapshots.rollback(box.id, snapshot)).phase).toBe('stopped');
      expect((await (await suite.wake(box.id)).read(path)).toString()).toBe('then');
    },
  );

  suite.case('a rollback can be undone, and gone through again and again', ['snapshots'], async () => {
    const box = await suite.box();
    const path = await box.write('note', 'one');
    const one = await suite.snapshot(box.id);
    await box.write('note', 'two');
    const two = await suite.snapshot(box.id);
    let incarnation = 1;
    for (const [snapshot, text] of [
      [one, 'one'],
      [two, 'two'],
      [one, 'one'],
      [one, 'one'],
    ] as const) {
      const after = await suite.snapshots.rollback(box.id, snapshot);
      expect(after.incarnation).toBeGreaterThan(incarnation);
      incarnation = after.incarnation;
      const back = await suite.wake(box.id);
      expect((await back.read(path)).toString()).toBe(text);
      // What is written afterwards is not in the snapshot, however often it is gone back to.
      await back.write(path, 'other');
    }
  });

  suite.case(
    'a sandbox keeps its limits and its spec through a rollback',
    ['snapshots', 'resize', 'memoryLimit'],
    async () => {
      const box = await suite.box({ env: { A: '1' } });
      const snapshot = await suite.snapshot(box.id);
      const memoryBytes = 256 * 1024 * 1024;
      await (suite.backend as { resize?(id: string, limits: object): Promise<void> }).resize!(box.id, {
        memoryBytes,
      });
      await suite.snapshots.rollback(box.id, snapshot);
      expect((await suite.backend.stats(box.id)).memoryLimitBytes).toBe(memoryBytes);
      await rejects(suite.backend.ensure(box.id, suite.spec()), 'already_exists');
      expect((await suite.backend.ensure(box.id, suite.spec({ env: { A: '1' } }))).phase).toBe('ready');
    },
  );

  suite.case("a clone goes back to its own snapshots and to its parent's", ['snapshots'], async () => {
    const box = await suite.box();
    const path = await box.write('note', 'parent');
    const first = await suite.snapshot(box.id);
    const clone = await suite.clone(first);
    await clone.write(path, 'clone');
    const second = await suite.snapshot(clone.id);
    await suite.snapshots.rollback(clone.id, first);
    expect((await (await suite.wake(clone.id)).read(path)).toString()).toBe('parent');
    await suite.snapshots.rollback(clone.id, second);
    expect((await (await suite.wake(clone.id)).read(path)).toString()).toBe('clone');
    expect((await box.read(path)).toString()).toBe('parent');
  });

  suite.case('a sandbox stands on what it was rolled back to', ['snapshots'], async () => {
    const box = await suite.box();
    const [one, two] = [await suite.snapshot(box.id), await suite.snapshot(box.id)];
    await suite.snapshots.rollback(box.id, one);
    expect((await rejects(suite.snapshots.removeSnapshot(one), 'failed_precondition')).details).toMatchObject(
      { sandboxes: [box.id] },
    );
    await suite.snapshots.rollback(box.id, two);
    await suite.snapshots.removeSnapshot(one);
    expect((await (await suite.wake(box.id)).run(['true'])).exitCode).toBe(0);
  });

  suite.case(
    'a rollback that fails leaves the sandbox and its commands as they were',
    ['snapshots'],
    async () => {
      const box = await suite.box();
      const path = await box.write('note', 'now');
      const snapshot = await suite.snapshot(box.id);
      const running = await box.start(['sleep', '60']);
      await rejects(suite.snapshots.rollback(box.id, newId('snap')), 'not_found');
      await rejects(
        suite.snapshots.rollback(box.id, 'snap_../../etc' as `snap_${string}`),
        'invalid_argument',
        'not_found',
      );
      await rejects(suite.snapshots.rollback(box.id, snapshot, { signal: AbortSignal.abort() }), 'cancelled');
      // It has no memory to go back to.
      await rejects(
        suite.snapshots.rollback(box.id, snapshot, { memory: true }),
        'unsupported',
        'failed_precondition',
      );
      await rejects(suite.snapshots.rollback(newId('sbx'), snapshot), 'not_found');
      expect(await suite.backend.observe(box.id)).toMatchObject({ phase: 'ready', incarnation: 1 });
      const commands = await box.guest.commands();
      const still = commands.find(({ id }) => id === running.id);
      expect(still).toMatchObject({ pid: running.pid });
      expect(still?.end).toBeUndefined();
      expect((await box.read(path)).toString()).toBe('now');
      expect((await box.run(['true'])).exitCode).toBe(0);
    },
  );

  suite.case(
    'a rollback to where the command of the spec is missing leaves the sandbox running',
    ['snapshots', 'users'],
    async () => {
      const command = '/opt/tool';
      const first = await suite.box();
      const without = await suite.snapshot(first.id);
      await first.root.write(command, Buffer.from('#!/bin/sh\nsleep 60\n'), { mode: 0o755 });
      const box = await suite.clone(await suite.snapshot(first.id), { cmd: [command] });
      const { incarnation } = await suite.backend.observe(box.id);
      await rejects(
        suite.snapshots.rollback(box.id, without),
        'not_found',
        'failed_precondition',
        'unavailable',
      );
      expect(await suite.backend.observe(box.id)).toMatchObject({ phase: 'ready', incarnation });
      expect((await box.root.stat(command)).type).toBe('file');
      expect((await box.guest.commands()).filter(({ end }) => !end)).toHaveLength(1);
    },
  );
}
