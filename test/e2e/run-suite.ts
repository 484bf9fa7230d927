/** What holds for `cay run` on every runtime. */
import { createHash, randomBytes } from 'node:crypto';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import type { Sandbox } from '@cay/sdk';
import { ended, openCay, printed, type Cay } from '../support/cay.ts';
import { whyLater } from '../support/tier.ts';

export function runSuite(runtime: string): void {
  const reason = runtime === 'runsc' ? undefined : whyLater();
  const why = reason === undefined ? '' : ` (skipped: ${reason})`;
  describe.skipIf(reason !== undefined)(`cay run on ${runtime}${why}`, () => {
    let cay: Cay;
    beforeAll(async () => {
      cay = await openCay({ CAY_RUNTIME: runtime });
    });
    afterAll(() => cay[Symbol.asyncDispose]());
    const sandboxes = () => cay.json<Sandbox['info'][]>('ls');

    it('starts the server in the background the first time, and uses it the second', async () => {
      expect((await cay.run('status')).code).toBe(3);
      expect(await cay.run('run', '--', 'python3', '-c', 'print("hello from a sandbox")')).toMatchObject({
        code: 0,
        stdout: 'hello from a sandbox\n',
      });
      const { pid } = await cay.json<{ pid: number }>('status');
      expect(await cay.run('run', '--', 'echo', 'again')).toMatchObject({ code: 0, stdout: 'again\n' });
      expect((await cay.json<{ pid: number }>('status')).pid).toBe(pid);
    });

    it('keeps standard output and standard error apart, byte for byte', async () => {
      expect(await cay.run('run', '--', 'sh', '-c', 'printf "a\\000b"; printf "c" >&2')).toEqual({
        code: 0,
        stdout: 'a\u0000b',
        stderr: 'c',
      });
    });

    it('passes standard input on, of any size', async () => {
      const input = randomBytes(3_000_000);
      const { stdout } = await cay.run('run', '--', 'sha256sum', { input });
      expect(stdout.split(' ')[0]).toBe(createHash('sha256').update(input).digest('hex'));
    });

    it.each([
      ['its own', ['sh', '-c', 'exit 42'], 42],
      ['128 and the signal', ['sh', '-c', 'kill -SEGV $$'], 139],
      ['127 if it is not found', ['no-such-program'], 127],
      ['126 if it cannot be executed', ['/etc/passwd'], 126],
    ])("exits with the command's code: %s", async (_, command, code) => {
      expect((await cay.run('run', '--', ...command)).code).toBe(code);
    });

    it('exits with 124 when the command ran into its timeout', async () => {
      expect((await cay.run('run', '--timeout', '300ms', '--', 'sleep', '60')).code).toBe(124);
    });

    it('exits with 137 when the command ran out of memory', async () => {
      const { code } = await cay.run(
        'run',
        '--memory',
        '128m',
        '--',
        'python3',
        '-c',
        'x = bytearray(10**9)\nfor i in range(0, len(x), 4096): x[i] = 1',
      );
      expect(code).toBe(137);
    });

    it('takes limits, environment, directory and user', async () => {
      const { stdout } = await cay.run(
        'run',
        '--cpus',
        '0.5',
        '-m',
        '256m',
        '-e',
        'A=b c',
        '-w',
        '/tmp',
        '-u',
        'root',
        '--',
        'sh',
        '-c',
        'echo $A $PWD $(id -u)',
      );
      expect(stdout).toBe('b c /tmp 0\n');
    });

    it.each([
      ['SIGINT', 130],
      ['SIGTERM', 143],
    ] as const)('passes %s to the command, and removes the sandbox', async (signal, code) => {
      const child = cay.start('run', '--', 'sh', '-c', 'echo ready; exec sleep 60');
      const end = ended(child);
      await printed(child, 'ready');
      child.kill(signal);
      expect((await end).code).toBe(code);
      await expect.poll(sandboxes, { timeout: 10_000 }).toEqual([]);
    });

    it('lets the command deal with a signal by itself', async () => {
      const child = cay.start(
        'run',
        '--',
        'sh',
        '-c',
        "trap 'echo caught; exit 9' INT; echo ready; while :; do sleep 0.05; done",
      );
      const end = ended(child);
      await printed(child, 'ready');
      child.kill('SIGINT');
      expect(await end).toMatchObject({ code: 9, stdout: 'ready\ncaught\n' });
    });

    it('ends when the reader of its output is gone', async () => {
      const child = cay.start('run', '--', 'yes');
      await printed(child, 'y');
      child.stdout!.destroy();
      child.stderr!.resume();
      expect(await new Promise((resolve) => child.on('exit', resolve))).toBe(141);
      await expect.poll(sandboxes, { timeout: 10_000 }).toEqual([]);
    });

    it('keeps the sandbox with --keep, under its name', async () => {
      expect(
        (await cay.run('run', '--keep', '--name', 'kept', '--', 'sh', '-c', 'echo x > /home/user/x')).code,
      ).toBe(0);
      expect((await sandboxes()).map(({ name, runtime: used }) => ({ name, used }))).toEqual([
        { name: 'kept', used: runtime },
      ]);
      expect(await cay.run('exec', 'kept', '--', 'cat', '/home/user/x')).toMatchObject({
        code: 0,
        stdout: 'x\n',
      });
      expect((await cay.run('rm', 'kept')).code).toBe(0);
    });

    it('gives the command a terminal with -t', async () => {
      expect(
        await cay.run('run', '-t', '--', 'sh', '-c', 'test -t 0 && test -t 1 && echo terminal'),
      ).toMatchObject({
        code: 0,
        stdout: 'terminal\r\n',
      });
    });

    it('says what is wrong with a flag, and what else there is', async () => {
      expect(await cay.run('run', '--template', 'nope', 'true')).toMatchObject({
        code: 125,
        stdout: '',
        stderr: expect.stringContaining('nope') as string,
      });
      expect(await cay.run('run', '--memory', 'much', 'true')).toMatchObject({
        code: 64,
        stderr: expect.stringContaining('hint:') as string,
      });
    });
  });
}
