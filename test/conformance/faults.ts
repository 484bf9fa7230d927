import { expect } from 'vitest';
import { drain, until, within } from './box.ts';
import { terminal } from './pty.ts';
import { rejects, type Suite } from './suite.ts';

export function faultCases(suite: Suite): void {
  suite.case('a sandbox that crashes is seen as failed, with a reason', [], async ({ skip }) => {
    const { crash } = suite.platform;
    if (!crash) return skip('the platform cannot crash a sandbox');
    const box = await suite.box();
    const running = drain(await box.start(['sleep', '60']));
    await crash(box.id);
    await until('it is seen as failed', async () => (await suite.backend.observe(box.id)).phase === 'failed');
    const seen = await suite.backend.observe(box.id);
    expect(['crashed', 'removed_outside']).toContain(seen.reason);
    expect((await within(5000, 'the end of its command', running)).end.kind).toBe('lost');
    await rejects(suite.backend.connect(box.id), 'failed_precondition');
    await rejects(box.files.stat('/tmp'), 'unavailable');
  });

  suite.case('watch() tells of a crash that the backend did not cause', [], async ({ skip }) => {
    const { crash } = suite.platform;
    if (!crash) return skip('the platform cannot crash a sandbox');
    const box = await suite.box();
    const aborter = new AbortController();
    const phases: string[] = [];
    const watching = (async () => {
      for await (const each of suite.backend.watch({ signal: aborter.signal }))
        if (each.id === box.id) phases.push(each.phase);
    })().catch(() => {});
    await crash(box.id);
    await until('failed was seen', () => phases.includes('failed'), 3000);
    aborter.abort();
    await watching;
  });

  suite.case('ensure() starts again what has crashed, with its files', [], async ({ skip }) => {
    const { crash } = suite.platform;
    if (!crash) return skip('the platform cannot crash a sandbox');
    const box = await suite.box();
    const path = await box.write('kept', 'kept');
    await crash(box.id);
    await until('it is seen as failed', async () => (await suite.backend.observe(box.id)).phase === 'failed');
    const again = await suite.backend.ensure(box.id, suite.spec());
    expect(again).toMatchObject({ phase: 'ready', incarnation: 2 });
    const guest = await suite.backend.connect(box.id);
    expect((await guest.files('user').stat(path)).sizeBytes).toBe(4);
  });

  suite.case('what has crashed can be removed', [], async ({ skip }) => {
    const { crash } = suite.platform;
    if (!crash) return skip('the platform cannot crash a sandbox');
    const box = await suite.box();
    await crash(box.id);
    await suite.backend.remove(box.id);
    expect((await suite.backend.observe(box.id)).phase).toBe('absent');
  });

  suite.case(
    'a sandbox answers again after a restart, in the same incarnation',
    ['survivesRestart'],
    async ({ skip }) => {
      if (!suite.platform.restart) return skip('the platform cannot restart the backend');
      const box = await suite.box();
      const path = await box.write('kept', 'kept');
      await suite.restart();
      expect((await suite.backend.list()).map(({ id }) => id)).toContain(box.id);
      await until('it is ready', async () => (await suite.backend.observe(box.id)).phase === 'ready', 5000);
      expect((await suite.backend.ensure(box.id, suite.spec())).incarnation).toBe(1);
      const guest = await suite.backend.connect(box.id);
      expect((await guest.files('user').stat(path)).sizeBytes).toBe(4);
    },
  );

  suite.case(
    'a command goes on over a restart, and its output is whole',
    ['survivesRestart', 'processes'],
    async ({ skip }) => {
      if (!suite.platform.restart) return skip('the platform cannot restart the backend');
      const box = await suite.box();
      const line = 'i=0; while [ $i -lt 100 ]; do echo line $i; i=$((i+1)); sleep 0.02; done; exit 6';
      const handle = await box.start(line, { id: 'long' });
      let text = '';
      for await (const chunk of handle.output) {
        if (chunk.channel !== 'gap') text += Buffer.from(chunk.data).toString();
        if (text.length > 50) break;
      }
      await suite.restart();
      await suite.backend.ensure(box.id, suite.spec());
      const rest = await drain(
        await (await suite.backend.connect(box.id)).attach('long', { offset: text.length }),
      );
      expect(text + rest.stdout).toBe(Array.from({ length: 100 }, (_, at) => `line ${at}\n`).join(''));
      expect(rest.exitCode).toBe(6);
    },
  );

  suite.case(
    'a terminal goes on over a restart, with what it showed meanwhile',
    ['survivesRestart', 'processes', 'pty'],
    async ({ skip }) => {
      if (!suite.platform.restart) return skip('the platform cannot restart the backend');
      const box = await suite.box();
      const handle = await box.start(['sh'], { id: 'shell', pty: { cols: 80, rows: 24 } });
      const before = terminal(handle);
      await before.type('word=kept; stty -echo; echo re""ady\n');
      await before.shows('ready');
      await before.type('sleep 0.3; echo mean""while\n');
      await suite.restart();
      await suite.backend.ensure(box.id, suite.spec());
      const again = await (await suite.backend.connect(box.id)).attach('shell', { offset: 0 });
      const after = terminal(again);
      expect(await after.shows('meanwhile')).toContain('ready');
      await after.type('echo $word; exit 4\n');
      await after.shows('kept');
      expect(await after.end()).toMatchObject({ kind: 'exited', exitCode: 4 });
    },
  );

  suite.case(
    'the end of a command that ended during a restart is there',
    ['survivesRestart', 'processes'],
    async ({ skip }) => {
      const { restart } = suite.platform;
      if (!restart) return skip('the platform cannot restart the backend');
      const box = await suite.box();
      const handle = await box.start('sleep 0.3; echo meanwhile; exit 8', { id: 'meanwhile' });
      await handle[Symbol.asyncDispose]();
      await suite.backend.close();
      await new Promise((resolve) => setTimeout(resolve, 600));
      suite.platform.backend = await restart();
      await suite.backend.ensure(box.id, suite.spec());
      const ran = await drain(await (await suite.backend.connect(box.id)).attach('meanwhile', { offset: 0 }));
      expect(ran).toMatchObject({ stdout: 'meanwhile\n', exitCode: 8 });
    },
  );

  suite.case(
    'a stopped sandbox is still stopped after a restart, and has its files',
    ['survivesRestart'],
    async ({ skip }) => {
      if (!suite.platform.restart) return skip('the platform cannot restart the backend');
      const box = await suite.box();
      const path = await box.write('kept', 'kept');
      await suite.backend.stop(box.id, { graceMs: 100 });
      await suite.restart();
      expect(await suite.backend.observe(box.id)).toMatchObject({ phase: 'stopped', incarnation: 1 });
      expect((await suite.backend.ensure(box.id, suite.spec())).incarnation).toBe(2);
      expect((await (await suite.backend.connect(box.id)).files('user').stat(path)).sizeBytes).toBe(4);
    },
  );

  suite.case(
    'a sandbox that was removed stays absent after a restart',
    ['survivesRestart'],
    async ({ skip }) => {
      if (!suite.platform.restart) return skip('the platform cannot restart the backend');
      const box = await suite.box();
      await suite.backend.remove(box.id);
      await suite.restart();
      expect((await suite.backend.observe(box.id)).phase).toBe('absent');
    },
  );

  suite.case('ensure() that fails undoes what it had begun', [], async () => {
    const id = suite.id();
    await rejects(suite.backend.ensure(id, suite.spec({ template: 'no-such-template' })), 'not_found');
    expect((await suite.backend.observe(id)).phase).toBe('absent');
    expect((await suite.backend.ensure(id, suite.spec())).incarnation).toBe(1);
  });
}
