import { newId } from '@cay/sdk/protocol';
import { expect } from 'vitest';
import type { Observation } from '../../server/src/backends/backend.ts';
import { drain, until, within } from './box.ts';
import { rejects, type Suite } from './suite.ts';

export function lifecycleCases(suite: Suite): void {
  suite.case('ensure() makes a sandbox whose guest answers at once', [], async () => {
    const id = suite.id();
    const made = await suite.backend.ensure(id, suite.spec());
    expect(made).toMatchObject({ id, phase: 'ready', incarnation: 1 });
    expect(suite.capabilities.runtimes).toContain(made.runtime);
    const guest = await suite.backend.connect(id);
    expect((await guest.files('user').stat('/tmp')).type).toBe('directory');
  });

  suite.case(
    'the uid of a sandbox stays while it runs, and is another after it was removed and made again',
    [],
    async () => {
      const id = suite.id();
      const { uid } = await suite.backend.ensure(id, suite.spec());
      expect(uid).toMatch(/^[\w.:-]{1,253}$/);
      expect((await suite.backend.ensure(id, suite.spec())).uid).toBe(uid);
      expect((await suite.backend.observe(id)).uid).toBe(uid);
      expect((await suite.backend.list()).find((each) => each.id === id)?.uid).toBe(uid);
      await suite.backend.remove(id);
      expect((await suite.backend.observe(id)).uid).toBeUndefined();
      const again = await suite.backend.ensure(id, suite.spec());
      expect(again.uid).toMatch(/^[\w.:-]{1,253}$/);
      expect(again.uid).not.toBe(uid);
    },
  );

  suite.case('ensure() of what is ready changes nothing', [], async () => {
    const box = await suite.box();
    await box.write('kept', 'kept');
    const running = await box.start(['sleep', '60']);
    const again = await suite.backend.ensure(box.id, suite.spec());
    expect(again).toMatchObject({ phase: 'ready', incarnation: 1 });
    expect((await box.read('kept')).toString()).toBe('kept');
    const commands = await (await suite.backend.connect(box.id)).commands();
    expect(commands.find(({ id }) => id === running.id)?.end).toBeUndefined();
  });

  suite.case(
    'ensure() with another spec rejects already_exists and leaves the sandbox as it is',
    [],
    async () => {
      const box = await suite.box();
      await rejects(suite.backend.ensure(box.id, suite.spec({ env: { OTHER: '1' } })), 'already_exists');
      expect(await suite.backend.observe(box.id)).toMatchObject({ phase: 'ready', incarnation: 1 });
      expect((await box.run(['true'])).exitCode).toBe(0);
    },
  );

  suite.case('ensure() with other limits only is not another spec', [], async () => {
    const box = await suite.box();
    const again = await suite.backend.ensure(box.id, suite.spec({ limits: { openFiles: 4096 } }));
    expect(again).toMatchObject({ phase: 'ready', incarnation: 1 });
  });

  suite.case('ensure() does not care about the order of the keys in env', [], async () => {
    const box = await suite.box({ env: { A: '1', B: '2' } });
    expect((await suite.backend.ensure(box.id, suite.spec({ env: { B: '2', A: '1' } }))).incarnation).toBe(1);
  });

  suite.case('ensure() after stop() keeps the files and is a new incarnation', [], async () => {
    const box = await suite.box();
    const path = await box.write('note', 'from the first life');
    const stopped = await suite.backend.stop(box.id, { graceMs: 500 });
    expect(stopped).toMatchObject({ id: box.id, phase: 'stopped', incarnation: 1 });
    const again = await suite.backend.ensure(box.id, suite.spec());
    expect(again).toMatchObject({ phase: 'ready', incarnation: 2 });
    const guest = await suite.backend.connect(box.id);
    const { info } = await guest.files('user').read(path);
    expect(info.sizeBytes).toBe('from the first life'.length);
    expect(await guest.commands()).toEqual([]);
  });

  suite.case(
    'ensure() starts the command of the spec, and its end does not end the sandbox',
    [],
    async () => {
      const box = await suite.box({ cmd: ['touch', '/home/user/started'] });
      await until('the command has run', () =>
        box.files.stat('/home/user/started').then(
          () => true,
          () => false,
        ),
      );
      await until('the command has ended', async () =>
        (await box.guest.commands()).every(({ end }) => end !== undefined),
      );
      expect((await suite.backend.observe(box.id)).phase).toBe('ready');
      expect((await box.run(['true'])).exitCode).toBe(0);
    },
  );

  suite.case('ensure() that is given up leaves nothing', [], async () => {
    const id = suite.id();
    const reason = AbortSignal.abort();
    await expect(suite.backend.ensure(id, suite.spec(), { signal: reason })).rejects.toThrow();
    expect((await suite.backend.observe(id)).phase).toBe('absent');
  });

  suite.case('observe() of what was never made answers absent', [], async () => {
    const id = newId('sbx');
    expect(await suite.backend.observe(id)).toMatchObject({ id, phase: 'absent', incarnation: 0 });
  });

  suite.case('remove() of what was never made is done', [], async () => {
    await expect(suite.backend.remove(newId('sbx'))).resolves.toBeUndefined();
  });

  suite.case('remove() can be repeated, and makes the sandbox absent', [], async () => {
    const box = await suite.box();
    await suite.backend.remove(box.id);
    await suite.backend.remove(box.id);
    expect(await suite.backend.observe(box.id)).toMatchObject({ phase: 'absent', incarnation: 0 });
    await rejects(suite.backend.connect(box.id), 'not_found');
  });

  suite.case('remove() ends a running command as lost, and later calls as unavailable', [], async () => {
    const box = await suite.box();
    const running = await box.start(['sleep', '60']);
    const ran = drain(running);
    await suite.backend.remove(box.id);
    expect((await within(5000, 'the end', ran)).end.kind).toBe('lost');
    await rejects(box.guest.commands(), 'unavailable');
    await rejects(box.files.stat('/tmp'), 'unavailable');
  });

  suite.case('remove() takes the files with it: the same id starts afresh', [], async () => {
    const box = await suite.box();
    const path = await box.write('note', 'gone');
    await suite.backend.remove(box.id);
    await suite.backend.ensure(box.id, suite.spec());
    const guest = await suite.backend.connect(box.id);
    await rejects(guest.files('user').stat(path), 'not_found');
    await suite.backend.remove(box.id);
  });

  suite.case('remove() of a stopped sandbox makes it absent', [], async () => {
    const box = await suite.box();
    await suite.backend.stop(box.id, { graceMs: 100 });
    await suite.backend.remove(box.id);
    expect((await suite.backend.observe(box.id)).phase).toBe('absent');
  });

  suite.case('list() has what runs and what is stopped, and not what was removed', [], async () => {
    const running = await suite.box();
    const stopped = await suite.box();
    const removed = await suite.box();
    await suite.backend.stop(stopped.id, { graceMs: 100 });
    await suite.backend.remove(removed.id);
    const phases = new Map((await suite.backend.list()).map(({ id, phase }) => [id, phase]));
    expect(phases.get(running.id)).toBe('ready');
    expect(phases.get(stopped.id)).toBe('stopped');
    expect(phases.has(removed.id)).toBe(false);
  });

  suite.case('watch() sees a sandbox become ready, stop, become ready again and go', [], async () => {
    const aborter = new AbortController();
    const seen: Observation[] = [];
    const id = suite.id();
    const watching = (async () => {
      for await (const observation of suite.backend.watch({ signal: aborter.signal })) {
        if (observation.id === id) seen.push(observation);
      }
    })().catch((error: unknown) => {
      if (!aborter.signal.aborted) throw error;
    });
    const saw = (phase: string, incarnation: number) => () =>
      seen.some((each) => each.phase === phase && each.incarnation === incarnation);
    await suite.backend.ensure(id, suite.spec());
    await until('ready was seen', saw('ready', 1));
    await suite.backend.stop(id, { graceMs: 100 });
    await until('stopped was seen', saw('stopped', 1));
    await suite.backend.ensure(id, suite.spec());
    await until('ready was seen again', saw('ready', 2));
    await suite.backend.remove(id);
    await until('absent was seen', () => seen.at(-1)?.phase === 'absent');
    aborter.abort();
    await within(5000, 'the end of the watch', watching);
  });

  suite.case('connect() and stats() of what is absent reject not_found', [], async () => {
    await rejects(suite.backend.connect(newId('sbx')), 'not_found');
    await rejects(suite.backend.stats(newId('sbx')), 'not_found');
  });

  suite.case('connect() and stats() of what is stopped reject failed_precondition', [], async () => {
    const box = await suite.box();
    await suite.backend.stop(box.id, { graceMs: 100 });
    await rejects(suite.backend.connect(box.id), 'failed_precondition');
    await rejects(suite.backend.stats(box.id), 'failed_precondition');
  });

  suite.case('stop() of what is absent rejects not_found', [], async () => {
    await rejects(suite.backend.stop(newId('sbx')), 'not_found');
  });

  suite.case('stop() of what is stopped is done', [], async () => {
    const box = await suite.box();
    await suite.backend.stop(box.id, { graceMs: 100 });
    expect(await suite.backend.stop(box.id)).toMatchObject({ phase: 'stopped', incarnation: 1 });
  });

  suite.case(
    'stop() lets a process that traps SIGTERM finish its work',
    ['processes', 'signals'],
    async () => {
      const box = await suite.box();
      const running = await box.start(
        `trap 'sleep 0.2; echo saved > ${box.dir}/saved; exit 0' TERM; echo ready; while :; do sleep 0.05; done`,
      );
      for await (const _ of running.output) break;
      await suite.backend.stop(box.id, { graceMs: 8000 });
      await suite.backend.ensure(box.id, suite.spec());
      const files = (await suite.backend.connect(box.id)).files('user');
      expect((await files.stat(`${box.dir}/saved`)).sizeBytes).toBe(6);
    },
  );

  suite.case('stop() ends by force what ignores SIGTERM', ['processes', 'signals'], async () => {
    const box = await suite.box();
    const running = await box.start(`trap '' TERM; echo ready; while :; do sleep 0.05; done`);
    for await (const _ of running.output) break;
    const stopped = await within(10_000, 'the stop', suite.backend.stop(box.id, { graceMs: 300 }));
    expect(stopped.phase).toBe('stopped');
  });

  suite.case('two guests of one sandbox see the same commands', [], async () => {
    const box = await suite.box();
    const other = await suite.backend.connect(box.id);
    const running = await box.start(['sleep', '60']);
    expect((await other.commands()).map(({ id }) => id)).toContain(running.id);
    expect((await box.run(['true'])).exitCode).toBe(0);
  });
}
