import { newId, type SandboxId } from '@cay/sdk/protocol';
import { expect } from 'vitest';
import { drain, within } from './box.ts';
import { rejects, type Suite } from './suite.ts';

const pause = (ms: number) => new Promise((resolve) => setTimeout(resolve, ms));

/** Whether it has settled yet. */
function settling(promise: Promise<unknown>): () => boolean {
  let settled = false;
  const note = () => (settled = true);
  promise.then(note, note);
  return () => settled;
}

export function freezeCases(suite: Suite): void {
  const backend = () => suite.ability('freeze');
  const frozen = async (id: SandboxId) => (await suite.backend.observe(id)).frozen ?? false;

  suite.case(
    'a command that is started while frozen waits, and ends after the thaw',
    ['freeze'],
    async () => {
      const box = await suite.box();
      expect(await frozen(box.id)).toBe(false);
      await backend().freeze(box.id);
      await backend().freeze(box.id);
      expect(await suite.backend.observe(box.id)).toMatchObject({
        phase: 'ready',
        incarnation: 1,
        frozen: true,
      });
      expect((await suite.backend.list()).find(({ id }) => id === box.id)).toMatchObject({ frozen: true });
      const ran = box.run(['echo', 'at last']);
      const read = box.files.stat('/tmp');
      const done = [settling(ran), settling(read)];
      await pause(150);
      expect(done.map((settled) => settled())).toEqual([false, false]);
      await backend().thaw(box.id);
      await backend().thaw(box.id);
      expect(await frozen(box.id)).toBe(false);
      expect((await within(5000, 'the command', ran)).stdout).toBe('at last\n');
      expect((await within(5000, 'the file', read)).type).toBe('directory');
    },
  );

  suite.case('what runs stands still while frozen, and goes on after', ['freeze'], async () => {
    const box = await suite.box();
    // Longer than a freeze takes where a cluster has to be told of it.
    const handle = await box.start('sleep 1; echo woken');
    await backend().freeze(box.id);
    const ran = drain(handle);
    const ended = settling(ran);
    await pause(1200);
    expect(ended()).toBe(false);
    await backend().thaw(box.id);
    expect(await within(5000, 'the end', ran)).toMatchObject({ stdout: 'woken\n', exitCode: 0 });
  });

  suite.case('a busy process takes no processor time while frozen', ['freeze', 'processes'], async () => {
    const box = await suite.box();
    await box.start('while :; do :; done');
    await pause(100);
    await backend().freeze(box.id);
    // What was used before may be counted a moment later, and in steps.
    await pause(150);
    const first = (await suite.backend.stats(box.id)).cpuUsageMs;
    await pause(400);
    expect((await suite.backend.stats(box.id)).cpuUsageMs - first).toBeLessThan(40);
    await backend().thaw(box.id);
    await expect
      .poll(async () => (await suite.backend.stats(box.id)).cpuUsageMs, { timeout: 5000 })
      .toBeGreaterThan(first + 20);
  });

  suite.case('ensure() thaws, in the same incarnation', ['freeze'], async () => {
    const box = await suite.box();
    await backend().freeze(box.id);
    const seen = await suite.backend.ensure(box.id, suite.spec());
    expect(seen).toMatchObject({ phase: 'ready', incarnation: 1 });
    expect(seen.frozen ?? false).toBe(false);
    expect((await within(5000, 'the command', box.run(['true']))).exitCode).toBe(0);
  });

  suite.case('what is frozen can be stopped, and removed with calls under way', ['freeze'], async () => {
    const [stopped, removed] = [await suite.box(), await suite.box()];
    await stopped.write('note', 'kept');
    await Promise.all([backend().freeze(stopped.id), backend().freeze(removed.id)]);
    const pending = rejects(removed.files.stat('/tmp'), 'unavailable');
    const seen = await within(10_000, 'the stop', suite.backend.stop(stopped.id, { graceMs: 100 }));
    expect(seen.phase).toBe('stopped');
    expect(await frozen(stopped.id)).toBe(false);
    await within(10_000, 'the removal', suite.backend.remove(removed.id));
    await within(5000, 'the pending call', pending);
    expect((await suite.backend.observe(removed.id)).phase).toBe('absent');
    expect((await (await suite.wake(stopped.id)).run(['cat', `${stopped.dir}/note`])).stdout).toBe('kept');
  });

  suite.case('what does not run cannot be frozen', ['freeze'], async () => {
    await rejects(backend().freeze(newId('sbx')), 'not_found');
    await rejects(backend().thaw(newId('sbx')), 'not_found');
    const box = await suite.box();
    await suite.backend.stop(box.id, { graceMs: 100 });
    await rejects(backend().freeze(box.id), 'failed_precondition');
    await rejects(backend().thaw(box.id), 'failed_precondition');
  });

  suite.case('a snapshot of what is frozen leaves it frozen', ['freeze', 'snapshots'], async () => {
    const box = await suite.box();
    await box.write('note', 'kept');
    await backend().freeze(box.id);
    const snapshot = await suite.snapshot(box.id);
    expect(await suite.backend.observe(box.id)).toMatchObject({ phase: 'ready', frozen: true });
    expect((await (await suite.clone(snapshot)).read(`${box.dir}/note`)).toString()).toBe('kept');
    await backend().thaw(box.id);
    expect((await box.run(['true'])).exitCode).toBe(0);
  });

  suite.case('a rollback of what is frozen runs afterwards', ['freeze', 'snapshots'], async () => {
    const box = await suite.box();
    const snapshot = await suite.snapshot(box.id);
    const path = await box.write('note', 'later');
    await backend().freeze(box.id);
    const after = await suite.snapshots.rollback(box.id, snapshot);
    expect(after).toMatchObject({ phase: 'ready' });
    expect(await frozen(box.id)).toBe(false);
    await rejects((await suite.wake(box.id)).files.stat(path), 'not_found');
  });

  suite.case(
    'a frozen sandbox is found frozen by the next server',
    ['freeze', 'survivesRestart'],
    async ({ skip }) => {
      if (!suite.platform.restart) return skip('the platform cannot restart the backend');
      const box = await suite.box();
      const running = await box.start(['sleep', '60']);
      await backend().freeze(box.id);
      await suite.restart();
      expect(await suite.backend.observe(box.id)).toMatchObject({
        phase: 'ready',
        incarnation: 1,
        frozen: true,
      });
      await backend().thaw(box.id);
      const guest = await suite.backend.connect(box.id);
      expect((await guest.commands()).find(({ id }) => id === running.id)).toMatchObject({
        pid: running.pid,
      });
    },
  );
}
