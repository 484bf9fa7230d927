import { expect } from 'vitest';
import { drain, within } from './box.ts';
import { rejects, type Suite } from './suite.ts';

export function commandCases(suite: Suite): void {
  suite.share();

  suite.inBox('the same id is the same command and runs once', [], async (box) => {
    const line = 'echo x >> counter; echo said';
    const first = await box.start(line, { id: 'once' });
    expect(first.existing).toBe(false);
    await drain(first);
    const second = await box.start(line, { id: 'once' });
    expect(second).toMatchObject({ existing: true, pid: first.pid });
    expect((await drain(second)).stdout).toBe('said\n');
    expect((await box.read('counter')).toString()).toBe('x\n');
  });

  suite.inBox('the same id twice at the same time runs once', [], async (box) => {
    const handles = await Promise.all(
      Array.from({ length: 8 }, () => box.start('echo x >> counter', { id: 'at-once' })),
    );
    expect(handles.filter(({ existing }) => !existing)).toHaveLength(1);
    await Promise.all(handles.map(drain));
    expect((await box.read('counter')).toString()).toBe('x\n');
  });

  suite.inBox('the end of a command is kept for those who come later', [], async (box) => {
    const first = await box.start('echo kept; exit 7');
    await drain(first);
    const later = await drain(await box.guest.attach(first.id, { offset: 0 }));
    expect(later).toMatchObject({ stdout: 'kept\n', end: { kind: 'exited', exitCode: 7 } });
    const last = await drain(await box.guest.attach(first.id, { offset: 5 }));
    expect(last).toMatchObject({ stdout: '', end: { kind: 'exited', exitCode: 7 } });
  });

  suite.inBox('a command goes on after its reader has left', [], async (box) => {
    const handle = await box.start('sleep 0.3; echo later; exit 4');
    await handle[Symbol.asyncDispose]();
    expect(await drain(await box.guest.attach(handle.id))).toMatchObject({ stdout: 'later\n', exitCode: 4 });
  });

  suite.inBox('ended settles for a reader that has left', [], async (box) => {
    const handle = await box.start('exit 5');
    await handle[Symbol.asyncDispose]();
    await within(5000, 'ended to settle', handle.ended);
  });

  suite.inBox('commands() lists what runs and what has ended, oldest first', [], async (box) => {
    const ended = await box.start(['echo', 'hi']);
    await drain(ended);
    const running = await box.start(['sleep', '60']);
    const infos = (await box.guest.commands()).filter(({ id }) => id === ended.id || id === running.id);
    expect(infos).toMatchObject([
      {
        id: ended.id,
        argv: ['echo', 'hi'],
        pty: false,
        end: { kind: 'exited', exitCode: 0 },
        outputBytes: 3,
        keptFrom: 0,
      },
      { id: running.id, argv: ['sleep', '60'], pid: running.pid, outputBytes: 0 },
    ]);
    expect(infos[1]!.end).toBeUndefined();
    expect(Math.abs(infos[1]!.startedAtMs - Date.now())).toBeLessThan(60_000);
    await box.guest.signal(running.id, 'SIGKILL');
  });

  suite.inBox('attach() to an unknown command rejects not_found', [], async (box) => {
    await rejects(box.guest.attach('never-started'), 'not_found');
  });

  suite.inBox(
    'signal() rejects not_found for the unknown and failed_precondition for the ended',
    [],
    async (box) => {
      await rejects(box.guest.signal('never-started', 'SIGTERM'), 'not_found');
      const handle = await box.start(['true']);
      await drain(handle);
      await rejects(box.guest.signal(handle.id, 'SIGTERM'), 'failed_precondition');
    },
  );

  suite.inBox('forget() lets go of an ended command, whose id is then free', [], async (box) => {
    await box.run('echo first', { id: 'reused' });
    await box.guest.forget('reused');
    await rejects(box.guest.attach('reused'), 'not_found');
    const again = await box.start('echo second', { id: 'reused' });
    expect(again.existing).toBe(false);
    expect((await drain(again)).stdout).toBe('second\n');
  });

  suite.inBox('forget() of the unknown is done, and of what runs failed_precondition', [], async (box) => {
    await expect(box.guest.forget('never-started')).resolves.toBeUndefined();
    const handle = await box.start(['sleep', '60']);
    await rejects(box.guest.forget(handle.id), 'failed_precondition');
    await box.guest.signal(handle.id, 'SIGKILL');
  });

  suite.inBox('a command that could not be started is not remembered', [], async (box) => {
    await rejects(box.start(['no-such-program'], { id: 'stillborn' }), 'not_found');
    await rejects(box.guest.attach('stillborn'), 'not_found');
    expect((await box.run(['true'], { id: 'stillborn' })).exitCode).toBe(0);
  });

  suite.inBox('the output of a chatty past is bounded, and the ends are still known', [], async (box) => {
    for (let round = 0; round < 20; round++)
      await box.run('head -c 1000000 /dev/zero', { id: `chatty-${round}` });
    const infos = (await box.guest.commands()).filter(({ id }) => id.startsWith('chatty-'));
    expect(infos).toHaveLength(20);
    expect(infos.every(({ end }) => end?.kind === 'exited')).toBe(true);
    const kept = infos.reduce((sum, { outputBytes, keptFrom }) => sum + outputBytes - keptFrom, 0);
    expect(kept).toBeLessThanOrEqual(8 * 1024 * 1024);
  });
}
