import { expect } from 'vitest';
import { drain, until, within, type Box } from './box.ts';
import type { Suite } from './suite.ts';

/** Whether the process whose number is in the file lives. */
export async function alive(box: Box, pidFile: string): Promise<boolean> {
  const pid = (await box.read(pidFile)).toString().trim();
  return (await box.run(`kill -0 ${pid}`, { user: box.strongest })).exitCode === 0;
}

const exists = (box: Box, name: string) =>
  box.files.stat(`${box.dir}/${name}`).then(
    ({ sizeBytes }) => sizeBytes > 0,
    () => false,
  );

export function endCases(suite: Suite): void {
  suite.share();

  suite.inBox('every exit code from 0 to 255 comes back', [], async (box) => {
    const codes = [0, 1, 2, 3, 42, 124, 125, 126, 127, 128, 129, 137, 143, 254, 255];
    const ends = await Promise.all(codes.map((code) => box.run(`exit ${code}`)));
    expect(ends.map(({ end }) => end)).toEqual(codes.map((exitCode) => ({ kind: 'exited', exitCode })));
  });

  suite.inBox(
    'a process that a signal ends has the name of the signal',
    ['processes', 'signals'],
    async (box) => {
      for (const name of ['SEGV', 'ABRT', 'TERM', 'KILL', 'USR1']) {
        expect((await box.run(['sh', '-c', `kill -${name} $$`])).end).toEqual({
          kind: 'signalled',
          signal: `SIG${name}`,
        });
      }
    },
  );

  suite.inBox('a signal that was sent is told as the end', ['signals'], async (box) => {
    for (const signal of ['SIGTERM', 'SIGINT', 'SIGKILL'] as const) {
      const handle = await box.start(['sleep', '60']);
      await box.guest.signal(handle.id, signal);
      expect((await within(5000, 'the end', drain(handle))).end).toEqual({ kind: 'signalled', signal });
    }
  });

  suite.inBox('a timeout ends the command as timed_out', [], async (box) => {
    const ran = await within(10_000, 'the end', box.run(['sleep', '60'], { timeoutMs: 150 }));
    expect(ran.end).toEqual({ kind: 'timed_out' });
  });

  suite.inBox('output from before a timeout is not lost', [], async (box) => {
    const ran = await box.run('echo before; sleep 60', { timeoutMs: 300 });
    expect(ran).toMatchObject({ stdout: 'before\n', end: { kind: 'timed_out' } });
  });

  suite.inBox('a timeout that is not reached changes nothing', [], async (box) => {
    expect((await box.run('exit 3', { timeoutMs: 20_000 })).end).toEqual({ kind: 'exited', exitCode: 3 });
  });

  suite.inBox(
    'a timeout kills children, and those that ignore SIGTERM',
    ['processes', 'treeKill'],
    async (box) => {
      const ran = await box.run(
        `(trap '' TERM HUP; echo $$ > ignored; sh -c 'echo $$ > child; exec sleep 600') & wait`,
        { timeoutMs: 500 },
      );
      expect(ran.end.kind).toBe('timed_out');
      await until('the child is gone', async () => !(await alive(box, 'child')));
    },
  );

  suite.inBox('a timeout kills what daemonised itself', ['processes', 'treeKill'], async (box) => {
    // Double fork, a session of its own, no environment, no open pipes: nothing ties it to the command but
    // descent.
    const daemon = `setsid env -i /bin/sh -c 'echo $$ > ${box.dir}/daemon; exec sleep 600' </dev/null >/dev/null 2>&1`;
    const ran = await box.run(
      `( ( ${daemon} & ) & ); while [ ! -s daemon ]; do sleep 0.02; done; sleep 600`,
      { timeoutMs: 1000 },
    );
    expect(ran.end.kind).toBe('timed_out');
    await until('the daemon is gone', async () => !(await alive(box, 'daemon')));
  });

  suite.inBox(
    'SIGKILL kills the whole tree, daemons included',
    ['processes', 'signals', 'treeKill'],
    async (box) => {
      const handle = await box.start(
        `( ( setsid sh -c 'echo $$ > daemon; exec sleep 600' </dev/null >/dev/null 2>&1 & ) & ); exec sleep 600`,
      );
      await until('the daemon runs', () => exists(box, 'daemon'));
      await box.guest.signal(handle.id, 'SIGKILL');
      expect((await drain(handle)).end).toEqual({ kind: 'signalled', signal: 'SIGKILL' });
      await until('the daemon is gone', async () => !(await alive(box, 'daemon')));
    },
  );

  suite.inBox('a daemon outlives a command that ends by itself', ['processes'], async (box) => {
    const ran = await box.run(
      `setsid sh -c 'echo $$ > daemon; exec sleep 5' </dev/null >/dev/null 2>&1 & while [ ! -s daemon ]; do sleep 0.02; done`,
    );
    expect(ran.exitCode).toBe(0);
    expect(await alive(box, 'daemon')).toBe(true);
    await box.run('kill -KILL $(cat daemon)');
  });

  suite.inBox('a signal reaches the whole process group', ['processes', 'signals'], async (box) => {
    const handle = await box.start(`sh -c 'echo $$ > child; exec sleep 600' & wait`);
    await until('the child runs', () => exists(box, 'child'));
    await box.guest.signal(handle.id, 'SIGTERM');
    expect((await drain(handle)).end).toEqual({ kind: 'signalled', signal: 'SIGTERM' });
    await until('the child is gone', async () => !(await alive(box, 'child')));
  });

  suite.inBox('a trapped signal is the business of the program', ['processes', 'signals'], async (box) => {
    const handle = await box.start(
      `trap 'echo got it; exit 3' USR1; echo ready; while :; do sleep 0.05; done`,
    );
    let text = '';
    for await (const chunk of handle.output) {
      // The shell itself may say on stderr that the signal also ended its sleep.
      if (chunk.channel !== 'stdout') continue;
      text += Buffer.from(chunk.data).toString();
      if (text === 'ready\n') await box.guest.signal(handle.id, 'SIGUSR1');
    }
    expect(text).toBe('ready\ngot it\n');
    expect(await handle.ended).toEqual({ kind: 'exited', exitCode: 3 });
  });

  suite.inBox('SIGSTOP holds a command, and SIGCONT lets it go on', ['processes', 'signals'], async (box) => {
    const handle = await box.start(`i=0; while :; do i=$((i+1)); echo $i > count; sleep 0.02; done`);
    await until('it counts', () => exists(box, 'count'));
    await box.guest.signal(handle.id, 'SIGSTOP');
    const count = async () => Number((await box.read('count')).toString());
    await new Promise((resolve) => setTimeout(resolve, 150));
    const held = await count();
    await new Promise((resolve) => setTimeout(resolve, 250));
    expect(await count()).toBe(held);
    await box.guest.signal(handle.id, 'SIGCONT');
    await until('it counts on', async () => (await count()) > held);
    await box.guest.signal(handle.id, 'SIGKILL');
    expect((await drain(handle)).end.kind).toBe('signalled');
  });

  suite.inBox('a child that holds the pipe does not delay the end', ['processes'], async (box) => {
    const ran = await within(10_000, 'the end', box.run('sleep 30 & echo done'));
    expect(ran).toMatchObject({ stdout: 'done\n', exitCode: 0 });
  });

  suite.inBox('an orphan is reaped', ['processes'], async (box) => {
    await box.run(`( sh -c 'echo $$ > orphan; exec sleep 0.1' & )`);
    await until('the orphan was told', () => exists(box, 'orphan'));
    const pid = (await box.read('orphan')).toString().trim();
    await until(
      'the orphan is gone from /proc',
      async () => (await box.run(`[ -e /proc/${pid} ]`)).exitCode !== 0,
    );
  });

  suite.case('a command under a stop ends as lost', [], async () => {
    const box = await suite.box();
    const ran = drain(await box.start(['sleep', '60']));
    await suite.backend.stop(box.id, { graceMs: 100 });
    const { end } = await within(5000, 'the end', ran);
    expect(['lost', 'signalled']).toContain(end.kind);
  });

  suite.case(
    'the greediest is oom_killed and the sandbox goes on',
    ['processes', 'memoryLimit'],
    async () => {
      const box = await suite.box({ limits: { memoryBytes: 128 * 1024 * 1024 } });
      const bystander = await box.start(['sleep', '60']);
      // A line that never ends: tail keeps all of it.
      const ran = await within(25_000, 'the end', box.run(['tail', '/dev/zero']));
      expect(ran.end).toEqual({ kind: 'oom_killed' });
      expect((await box.run(['true'])).exitCode).toBe(0);
      expect((await box.guest.commands()).find(({ id }) => id === bystander.id)?.end).toBeUndefined();
      expect((await suite.backend.observe(box.id)).phase).toBe('ready');
      expect((await suite.backend.stats(box.id)).oomKills).toBeGreaterThan(0);
    },
  );
}
