import { expect } from 'vitest';
import type { CommandHandle } from '../../server/src/guest/guest.ts';
import { drain, within, type Box } from './box.ts';
import type { Suite } from './suite.ts';

const SIZE = { cols: 80, rows: 24 };

/** Reads a terminal piece by piece. */
export function terminal(handle: CommandHandle) {
  const chunks = handle.output[Symbol.asyncIterator]();
  let seen = '';
  return {
    type: (text: string) => handle.write(Buffer.from(text)),
    /** Reads on until the text has appeared, and gives all that was seen up to now. */
    async shows(text: string): Promise<string> {
      while (!seen.includes(text)) {
        const next = await within(
          10_000,
          `${JSON.stringify(text)} on the terminal, which shows ${JSON.stringify(seen)}`,
          chunks.next(),
        );
        if (next.done)
          throw new Error(`The terminal ended without ${JSON.stringify(text)}: ${JSON.stringify(seen)}`);
        if (next.value.channel === 'gap') continue;
        expect(next.value.channel).toBe('pty');
        seen += Buffer.from(next.value.data).toString();
      }
      const upTo = seen;
      seen = '';
      return upTo;
    },
    async end() {
      while (!(await within(10_000, 'the end of the terminal', chunks.next())).done);
      return handle.ended;
    },
  };
}

const start = (box: Box, line: string) => box.start(['sh', '-c', line], { pty: SIZE });

export function ptyCases(suite: Suite): void {
  suite.share();

  suite.inBox('a pty is a terminal, and a pipe is none', ['processes', 'pty'], async (box) => {
    const line = 'if [ -t 0 ] && [ -t 1 ] && [ -t 2 ]; then echo terminal; else echo none; fi';
    expect((await drain(await start(box, line))).stdout).toBe('terminal\r\n');
    expect((await box.run(line)).stdout).toBe('none\n');
  });

  suite.inBox('a pty has the size that was asked for', ['processes', 'pty'], async (box) => {
    const handle = await box.start(['stty', 'size'], { pty: { cols: 123, rows: 45 } });
    expect((await drain(handle)).stdout).toBe('45 123\r\n');
  });

  suite.inBox('resize() is seen by the program', ['processes', 'pty'], async (box) => {
    const handle = await start(box, 'echo ready; read line; stty size');
    const tty = terminal(handle);
    await tty.shows('ready');
    await box.guest.resize(handle.id, { cols: 100, rows: 30 });
    await tty.type('\n');
    await tty.shows('30 100');
    expect(await tty.end()).toEqual({ kind: 'exited', exitCode: 0 });
  });

  suite.inBox('resize() sends SIGWINCH', ['processes', 'pty'], async (box) => {
    const handle = await start(box, 'trap "echo winch" WINCH; echo ready; while :; do sleep 0.05; done');
    const tty = terminal(handle);
    await tty.shows('ready');
    await box.guest.resize(handle.id, { cols: 90, rows: 20 });
    await tty.shows('winch');
    await box.guest.signal(handle.id, 'SIGKILL');
    await tty.end();
  });

  suite.inBox('what is typed is echoed and read', ['processes', 'pty'], async (box) => {
    const tty = terminal(await start(box, 'echo ready; read name; echo "hello $name"'));
    await tty.shows('ready');
    await tty.type('wörld\n');
    await tty.shows('hello wörld');
    expect(await tty.end()).toEqual({ kind: 'exited', exitCode: 0 });
  });

  suite.inBox('Ctrl-C ends the program in the foreground', ['processes', 'pty'], async (box) => {
    const handle = await box.start(['cat'], { pty: SIZE });
    const tty = terminal(handle);
    await tty.type('here\n');
    await tty.shows('here\r\nhere');
    await tty.type('\u0003');
    expect(await tty.end()).toEqual({ kind: 'signalled', signal: 'SIGINT' });
  });

  suite.inBox('Ctrl-D is the end of input', ['processes', 'pty'], async (box) => {
    const tty = terminal(await box.start(['cat'], { pty: SIZE }));
    await tty.type('line\n');
    await tty.shows('line\r\nline');
    await tty.type('\u0004');
    expect(await tty.end()).toEqual({ kind: 'exited', exitCode: 0 });
  });

  suite.inBox('stdout and stderr are one channel on a pty', ['processes', 'pty'], async (box) => {
    const ran = await drain(await start(box, 'echo out; echo err >&2'));
    expect(ran).toMatchObject({ stdout: 'out\r\nerr\r\n', stderr: '' });
  });

  suite.inBox(
    'an interactive shell on a pty runs what is typed, and TERM is set',
    ['processes', 'pty'],
    async (box) => {
      const tty = terminal(await box.start(['sh', '-i'], { pty: SIZE }));
      await tty.type('echo "term=[$TERM]"; echo $((40+2))\n');
      const text = await tty.shows('\r\n42');
      expect(text).toMatch(/term=\[[a-z]/);
      await tty.type('exit 9\n');
      expect(await tty.end()).toEqual({ kind: 'exited', exitCode: 9 });
    },
  );

  suite.inBox(
    'a command on a pty is listed as one, and can be attached to again',
    ['processes', 'pty'],
    async (box) => {
      const handle = await start(box, 'echo first; read line; echo "second $line"');
      const tty = terminal(handle);
      await tty.shows('first');
      await handle[Symbol.asyncDispose]();
      expect((await box.guest.commands()).find(({ id }) => id === handle.id)?.pty).toBe(true);
      const again = terminal(await box.guest.attach(handle.id, { offset: 0 }));
      await again.type('life\n');
      await again.shows('second life');
      expect(await again.end()).toEqual({ kind: 'exited', exitCode: 0 });
    },
  );

  suite.inBox('resize() of a command without a pty is refused', ['pty'], async (box) => {
    const handle = await box.start(['sleep', '60']);
    await expect(box.guest.resize(handle.id, SIZE)).rejects.toMatchObject({ name: 'CayError' });
    await box.guest.signal(handle.id, 'SIGKILL');
  });

  suite.inBox('closing the reader does not hang up the terminal', ['processes', 'pty'], async (box) => {
    const handle = await start(box, 'sleep 0.3; echo alive > alive');
    await handle[Symbol.asyncDispose]();
    const ran = await drain(await box.guest.attach(handle.id));
    expect(ran.exitCode).toBe(0);
    expect((await box.read('alive')).toString()).toBe('alive\n');
  });
}
