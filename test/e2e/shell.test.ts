/** A real terminal around `cay shell`: tmux types, resizes and looks at the screen. */
import { execFile } from 'node:child_process';
import { randomUUID } from 'node:crypto';
import { promisify } from 'node:util';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { LAUNCHER_PATH, ended, openCay, printed, type Cay } from '../support/cay.ts';

const run = promisify(execFile);

describe.each(['runc', 'runsc'])('cay shell on %s', (runtime) => {
  let cay: Cay;
  const server = `cay-${randomUUID()}`;
  const tmux = async (...args: string[]) =>
    (await run('tmux', ['-L', server, '-f', '/dev/null', ...args], { env: cay.env })).stdout;
  const type = (...keys: string[]) => tmux('send-keys', ...keys);
  const screen = () => tmux('capture-pane', '-p', '-S', '-');
  const shows = (wanted: RegExp) => expect.poll(screen, { timeout: 15_000, interval: 100 }).toMatch(wanted);

  beforeAll(async () => {
    cay = await openCay({ CAY_RUNTIME: runtime });
    expect((await cay.run('create', '--name', 'term')).code).toBe(0);
    await tmux('new-session', '-d', '-x', '100', '-y', '30', 'bash --norc');
    await type("PS1='LOCAL> '; clear", 'Enter');
  });
  afterAll(async () => {
    await tmux('kill-server').catch(() => {});
    await cay[Symbol.asyncDispose]();
  });

  it('ends with its input where that is no terminal', async () => {
    for (let times = 0; times < 3; times++)
      expect(await cay.run('shell', 'term')).toMatchObject({ code: 0, stdout: '' });
    expect(await cay.run('shell', 'term', { input: 'echo one; exit 3\n' })).toEqual({
      code: 3,
      stdout: 'one\n',
      stderr: '',
    });
    expect((await cay.run('exec', '-t', 'term', '--', '/bin/bash', '--norc', '-i')).code).toBe(0);
  });

  it('ends on SIGTERM, also on a terminal', async () => {
    const child = cay.spawn(['exec', '-t', 'term', '--', '/bin/bash', '--norc', '-i'], 'pipe');
    const end = ended(child);
    await printed(child, '$');
    child.kill('SIGTERM');
    expect((await end).code).toBeGreaterThan(128);
  });

  it('is a terminal of the same size and kind', async () => {
    await shows(/^LOCAL> *$/m);
    await type(`${LAUNCHER_PATH} shell term`, 'Enter');
    await shows(/user@.*\$ *$/m);
    await type('stty size; echo term=$TERM; test -t 0 && echo is-terminal', 'Enter');
    await shows(/^30 100\nterm=tmux.*\nis-terminal$/m);
  });

  it('gives Ctrl-C and Ctrl-Z to what runs inside', async () => {
    await type('sleep 1000', 'Enter');
    await expect
      .poll(async () => (await cay.run('exec', 'term', 'sh', '-c', 'cat /proc/[0-9]*/comm')).stdout, {
        timeout: 10_000,
      })
      .toContain('sleep');
    await type('C-c');
    await type('echo code=$?', 'Enter');
    await shows(/^code=130$/m);
    await type('sleep 1001', 'Enter');
    await expect
      .poll(async () => (await cay.run('exec', 'term', 'sh', '-c', 'cat /proc/[0-9]*/comm')).stdout, {
        timeout: 10_000,
      })
      .toContain('sleep');
    await type('C-z');
    await shows(/Stopped +sleep 1001/);
    await type('kill -9 %1; wait; echo gone', 'Enter');
    await shows(/^gone$/m);
  });

  it('follows the size of the window', async () => {
    await tmux('resize-window', '-x', '90', '-y', '20');
    await expect
      .poll(
        async () => {
          await type('stty size', 'Enter');
          return screen();
        },
        { timeout: 15_000, interval: 500 },
      )
      .toMatch(/^20 90$/m);
  });

  it('runs full-screen programs', async () => {
    await type(
      'clear; python3 -c "import curses; curses.wrapper(lambda s: (s.addstr(5, 10, str(s.getmaxyx())), s.refresh(), s.getch()))"',
      'Enter',
    );
    await shows(/^ {10}\(20, 90\)$/m);
    await type('q');
    await type('echo back', 'Enter');
    await shows(/^back$/m);
  });

  it("ends with the shell's code and gives the terminal back", async () => {
    await type('clear; exit 7', 'Enter');
    await shows(/^LOCAL> *$/m);
    await type('echo code=$?; stty -a | grep -oE -- "-?icanon|-?echo\\b"', 'Enter');
    await shows(/^code=7\nicanon\necho$/m);
  });

  it.each([
    ['on a terminal', ['-t']],
    ['without one', []],
  ])('Ctrl-P Ctrl-Q leaves a command %s running', async (_, flags) => {
    const loop = 'while :; do echo tick; sleep 0.2; done';
    const id = (await cay.run('exec', '-d', ...flags, 'term', '--', 'sh', '-c', loop)).stdout.trim();
    await type('clear', 'Enter');
    await type(`${LAUNCHER_PATH} attach term ${id}`, 'Enter');
    await shows(/^tick$/m);
    await type('C-p');
    await type('C-q');
    await shows(new RegExp(`detached from ${id}`));
    await type('echo code=$?; stty -a | grep -oE -- "-?icanon|-?echo\\b"', 'Enter');
    await shows(/^code=0\nicanon\necho$/m);
    expect((await cay.run('ps', '-q', 'term')).stdout).toContain(id);
    await type('clear', 'Enter');
    await type(`${LAUNCHER_PATH} attach term ${id}`, 'Enter');
    await shows(/^tick$/m);
    await type('C-c');
    await shows(/^LOCAL> *$/m);
    expect((await cay.run('ps', '-q', 'term')).stdout).not.toContain(id);
  });

  it('gives the terminal back when the sandbox goes away under it', async () => {
    await type('clear', 'Enter');
    await type(`${LAUNCHER_PATH} shell term`, 'Enter');
    await shows(/user@.*\$ *$/m);
    await cay.run('rm', 'term');
    await shows(/^LOCAL> *$/m);
    await type('clear; stty -a | grep -oE -- "-?icanon|-?echo\\b"', 'Enter');
    await shows(/^icanon\necho$/m);
  });
});
