import { expect } from 'vitest';
import { drain, within } from './box.ts';
import { rejects, type Suite } from './suite.ts';

export function suspendCases(suite: Suite): void {
  const backend = () => suite.ability('suspend');

  suite.case(
    'a suspended sandbox keeps its files, and starts again when it is ensured',
    ['suspend'],
    async () => {
      const box = await suite.box();
      await box.write('kept', 'kept');
      const running = drain(await box.start(['sleep', '60']));
      expect(await backend().suspend(box.id, { graceMs: 100 })).toMatchObject({
        phase: 'stopped',
        suspended: true,
      });
      expect((await within(5000, 'the end of its command', running)).end.kind).not.toBe('exited');
      expect(await backend().suspend(box.id)).toMatchObject({ phase: 'stopped', suspended: true });
      expect(await suite.backend.observe(box.id)).toMatchObject({
        phase: 'stopped',
        suspended: true,
        incarnation: 1,
      });
      expect((await suite.backend.list()).find(({ id }) => id === box.id)).toMatchObject({ suspended: true });
      await rejects(suite.backend.connect(box.id), 'failed_precondition');
      const awake = await suite.wake(box.id);
      expect(await suite.backend.observe(box.id)).toMatchObject({ phase: 'ready', incarnation: 2 });
      expect((await suite.backend.observe(box.id)).suspended ?? false).toBe(false);
      expect((await awake.read(`${box.dir}/kept`)).toString()).toBe('kept');
    },
  );

  suite.case(
    'what is suspended can be stopped, and is then no longer told as such',
    ['suspend'],
    async () => {
      const box = await suite.box();
      await backend().suspend(box.id, { graceMs: 100 });
      expect((await suite.backend.stop(box.id)).suspended ?? false).toBe(false);
      expect((await suite.backend.observe(box.id)).suspended ?? false).toBe(false);
      // A stopped sandbox is not suspended, and does not wake.
      await rejects(backend().suspend(box.id), 'failed_precondition');
    },
  );

  suite.case('what is suspended can be removed', ['suspend'], async () => {
    const box = await suite.box();
    await backend().suspend(box.id, { graceMs: 100 });
    await suite.backend.remove(box.id);
    expect((await suite.backend.observe(box.id)).phase).toBe('absent');
    await rejects(backend().suspend(box.id), 'not_found');
  });

  suite.case(
    'a suspended sandbox is found so by the next server',
    ['suspend', 'survivesRestart'],
    async () => {
      const box = await suite.box();
      await backend().suspend(box.id, { graceMs: 100 });
      await suite.restart();
      expect(await suite.backend.observe(box.id)).toMatchObject({ phase: 'stopped', suspended: true });
    },
  );

  suite.case('what is frozen can be suspended', ['suspend', 'freeze'], async () => {
    const box = await suite.box();
    await suite.backend.ability('freeze')?.freeze(box.id);
    expect(await backend().suspend(box.id, { graceMs: 100 })).toMatchObject({
      phase: 'stopped',
      suspended: true,
    });
    expect((await suite.backend.observe(box.id)).frozen ?? false).toBe(false);
  });
}
