import { newId } from '@cay/sdk/protocol';
import { expect } from 'vitest';
import { drain, gather, until, within } from './box.ts';
import { holdCounter, startCounter } from './counter.ts';
import { echoServer } from './ports.ts';
import { rejects, type Suite } from './suite.ts';

export function hibernateCases(suite: Suite): void {
  const backend = () => suite.ability('memorySnapshots');

  suite.case(
    'a hibernated sandbox goes on with its processes, their memory and their open files',
    ['memorySnapshots'],
    async () => {
      const box = await suite.box();
      const counter = await startCounter(box);
      const first = await counter.ask('one');
      expect(first.count).toBe(1);
      const asleep = await backend().hibernate(box.id);
      expect(asleep).toMatchObject({ id: box.id, phase: 'hibernated' });
      expect(await suite.backend.observe(box.id)).toMatchObject({
        phase: 'hibernated',
        incarnation: asleep.incarnation,
      });
      expect((await suite.backend.list()).find(({ id }) => id === box.id)).toMatchObject({
        phase: 'hibernated',
      });
      const awake = await suite.wake(box.id);
      expect((await suite.backend.observe(box.id)).incarnation).toBeGreaterThanOrEqual(asleep.incarnation);
      const again = await holdCounter(awake.guest, counter);
      expect(again.pid).toBe(counter.pid);
      expect(await again.ask('two')).toEqual({ count: 2, pid: first.pid });
      expect((await awake.read(`${box.dir}/counted`)).toString()).toBe('1\n2\n');
      expect((await awake.run(['true'])).exitCode).toBe(0);
    },
  );

  suite.case(
    'a hibernated sandbox takes no calls, and hibernating it again is done',
    ['memorySnapshots'],
    async () => {
      const box = await suite.box();
      await backend().hibernate(box.id);
      expect((await backend().hibernate(box.id)).phase).toBe('hibernated');
      await rejects(suite.backend.connect(box.id), 'failed_precondition');
      await rejects(suite.backend.stats(box.id), 'failed_precondition');
      const freezing = suite.backend.ability('freeze');
      if (freezing) await rejects(freezing.freeze(box.id), 'failed_precondition');
      expect((await (await suite.wake(box.id)).run(['true'])).exitCode).toBe(0);
    },
  );

  suite.case('a terminal is a terminal after hibernation', ['memorySnapshots', 'pty'], async () => {
    const box = await suite.box();
    const counter = await startCounter(box, { pty: { cols: 91, rows: 27 } });
    const first = await counter.ask('one');
    await backend().hibernate(box.id);
    const awake = await suite.wake(box.id);
    expect(await (await holdCounter(awake.guest, counter)).ask('two')).toEqual({ count: 2, pid: first.pid });
    await awake.guest.resize(counter.id, { cols: 100, rows: 30 });
  });

  suite.case('a server inside listens after hibernation', ['memorySnapshots', 'ports'], async (context) => {
    const box = await suite.box();
    const { port } = await echoServer(suite, box, context);
    await backend().hibernate(box.id);
    const awake = await suite.wake(box.id);
    await until('the port is told', async () =>
      (await awake.guest.ports.list()).some((each) => each.port === port),
    );
    const connection = await awake.guest.ports.connect(port);
    await connection.write(Buffer.from('still here'));
    await connection.end();
    expect((await within(5000, 'the echo', gather(connection.readable))).toString()).toBe('still here');
  });

  suite.case(
    'a command that was waiting ends after hibernation, and its output and end are known',
    ['memorySnapshots'],
    async () => {
      const box = await suite.box();
      const { id } = await box.start('echo before; sleep 0.5; echo after; exit 7');
      await backend().hibernate(box.id);
      const awake = await suite.wake(box.id);
      const ran = await within(10_000, 'the end', drain(await awake.guest.attach(id)));
      expect(ran).toMatchObject({ stdout: 'before\nafter\n', exitCode: 7 });
    },
  );

  suite.case(
    'what is frozen can hibernate, and runs when it is ensured',
    ['memorySnapshots', 'freeze'],
    async () => {
      const box = await suite.box();
      const counter = await startCounter(box);
      await counter.ask('one');
      await suite.backend.ability('freeze')?.freeze(box.id);
      const asleep = await backend().hibernate(box.id);
      expect(asleep.phase).toBe('hibernated');
      expect(asleep.frozen ?? false).toBe(false);
      const awake = await suite.wake(box.id);
      expect((await (await holdCounter(awake.guest, counter)).ask('two')).count).toBe(2);
    },
  );

  suite.case(
    'what is hibernated can be stopped and removed, and its files are kept until then',
    ['memorySnapshots'],
    async () => {
      const box = await suite.box();
      const path = await box.write('note', 'kept');
      const counter = await startCounter(box);
      await backend().hibernate(box.id);
      expect((await suite.backend.stop(box.id, { graceMs: 100 })).phase).toBe('stopped');
      const awake = await suite.wake(box.id);
      expect((await awake.read(path)).toString()).toBe('kept');
      expect((await awake.guest.commands()).map(({ id }) => id)).not.toContain(counter.id);
      await backend().hibernate(box.id);
      await suite.backend.remove(box.id);
      expect((await suite.backend.observe(box.id)).phase).toBe('absent');
    },
  );

  suite.case('what does not run cannot hibernate', ['memorySnapshots'], async () => {
    await rejects(backend().hibernate(newId('sbx')), 'not_found', 'failed_precondition');
    const box = await suite.box();
    await suite.backend.stop(box.id, { graceMs: 100 });
    await rejects(backend().hibernate(box.id), 'failed_precondition');
    expect((await suite.backend.observe(box.id)).phase).toBe('stopped');
  });

  suite.case('hibernation is unsupported where processes cannot be kept', [], async ({ skip }) => {
    if (suite.capabilities.abilities.memorySnapshots) return skip('this backend keeps processes');
    const hibernating = suite.backend.ability('memorySnapshots');
    if (!hibernating)
      return skip(`no hibernate: ${suite.capabilities.notes.memorySnapshots ?? 'no reason was given'}`);
    const box = await suite.box();
    await rejects(hibernating.hibernate(box.id), 'unsupported');
    expect((await box.run(['true'])).exitCode).toBe(0);
  });

  suite.case(
    'a hibernated sandbox is found again by the next server',
    ['memorySnapshots', 'survivesRestart'],
    async ({ skip }) => {
      if (!suite.platform.restart) return skip('the platform cannot restart the backend');
      const box = await suite.box();
      const counter = await startCounter(box);
      await counter.ask('one');
      await backend().hibernate(box.id);
      await suite.restart();
      expect((await suite.backend.observe(box.id)).phase).toBe('hibernated');
      const awake = await suite.wake(box.id);
      expect((await (await holdCounter(awake.guest, counter)).ask('two')).count).toBe(2);
    },
  );
}
