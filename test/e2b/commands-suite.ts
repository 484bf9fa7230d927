/** Commands and terminals through a published client. */
import type * as e2b from 'e2b';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { eventually, type E2bPlatform } from './e2b-platform.ts';

export function commandsSuite(client: typeof e2b, platform: () => E2bPlatform): void {
  describe('commands', () => {
    let sandbox: e2b.Sandbox;
    beforeAll(async () => {
      sandbox = await client.Sandbox.create({ ...platform().access, envs: { FROM_CREATE: 'one' } });
    });
    afterAll(() => sandbox.kill());

    it('runs a command and keeps its streams apart', async () => {
      expect(await sandbox.commands.run('echo out; echo err >&2')).toMatchObject({
        exitCode: 0,
        stdout: 'out\n',
        stderr: 'err\n',
      });
    });

    it('tells an exit code as an error of the client', async () => {
      const failure = await sandbox.commands.run('echo partial; exit 3').catch((error: unknown) => error);
      expect(failure).toBeInstanceOf(client.CommandExitError);
      expect(failure).toMatchObject({ exitCode: 3, stdout: 'partial\n' });
    });

    it('gives the environment of the sandbox and of the command', async () => {
      const { stdout } = await sandbox.commands.run(
        'echo $FROM_CREATE $FROM_RUN $E2B_SANDBOX $E2B_SANDBOX_ID',
        {
          envs: { FROM_RUN: 'two' },
        },
      );
      expect(stdout).toBe(`one two true ${sandbox.sandboxId}\n`);
    });

    it('runs as the user and in the directory that are asked for', async () => {
      expect((await sandbox.commands.run('whoami; pwd')).stdout).toBe('user\n/home/user\n');
      expect((await sandbox.commands.run('whoami; pwd', { user: 'root' })).stdout).toBe('root\n/root\n');
      expect((await sandbox.commands.run('pwd', { cwd: '/tmp' })).stdout).toBe('/tmp\n');
    });

    it('rejects a user and a directory that are not there', async () => {
      await expect(sandbox.commands.run('true', { user: 'nobody-here' })).rejects.toThrow(
        "invalid username: 'nobody-here'",
      );
      await expect(sandbox.commands.run('true', { cwd: '/not/there' })).rejects.toBeInstanceOf(
        client.InvalidArgumentError,
      );
    });

    it('hands output out while the command runs', async () => {
      const seen: string[] = [];
      const handle = await sandbox.commands.run('echo first; read line; echo $line', {
        background: true,
        stdin: true,
        onStdout: (data) => void seen.push(data),
      });
      await eventually(() => seen.join('') === 'first\n');
      await sandbox.commands.sendStdin(handle.pid, 'second\n');
      expect((await handle.wait()).stdout).toBe('first\nsecond\n');
    });

    it('gives no input to a command that asks for none, and ends it for one that does', async () => {
      expect((await sandbox.commands.run('cat; echo over')).stdout).toBe('over\n');
      const handle = await sandbox.commands.run('cat', { background: true, stdin: true });
      await sandbox.commands.sendStdin(handle.pid, 'données\n');
      await sandbox.commands.closeStdin(handle.pid);
      expect((await handle.wait()).stdout).toBe('données\n');
    });

    it('ends a command at its timeout, and all that it started', async () => {
      await expect(
        sandbox.commands.run('sleep 4321 & sleep 4321', { timeoutMs: 300 }),
      ).rejects.toBeInstanceOf(client.TimeoutError);
      await eventually(
        async () => (await sandbox.commands.run('pgrep -fx "sleep 4321" || true')).stdout === '',
      );
    });

    it('lists what runs, and kills it once', async () => {
      const handle = await sandbox.commands.run('sleep 1234', { background: true });
      const listed = (await sandbox.commands.list()).find(({ pid }) => pid === handle.pid);
      expect(listed).toMatchObject({ cmd: '/bin/bash', args: ['-l', '-c', 'sleep 1234'] });
      expect(await handle.kill()).toBe(true);
      await expect(handle.wait()).rejects.toThrow('signal: killed');
      expect(await sandbox.commands.kill(handle.pid)).toBe(false);
      expect(await sandbox.commands.kill(999_999)).toBe(false);
    });

    it('connects to a command that runs, and to one that has ended', async () => {
      const first = await sandbox.commands.run('read line; echo got $line; exit 4', {
        background: true,
        stdin: true,
      });
      await first.disconnect();
      const second = await sandbox.commands.connect(first.pid);
      await sandbox.commands.sendStdin(first.pid, 'it\n');
      await expect(second.wait()).rejects.toMatchObject({ exitCode: 4, stdout: 'got it\n' });
      const late = await sandbox.commands.connect(first.pid);
      await expect(late.wait()).rejects.toMatchObject({ exitCode: 4 });
      await expect(sandbox.commands.connect(999_999)).rejects.toBeInstanceOf(client.NotFoundError);
    });

    it('lets a command go on whose client has disconnected, however much it prints', async () => {
      const handle = await sandbox.commands.run(
        'head -c 20000000 /dev/zero | tr "\\0" x; echo done > /tmp/said',
        { background: true },
      );
      await handle.disconnect();
      await eventually(() => sandbox.files.exists('/tmp/said'));
    });

    it('carries a lot of output whole', async () => {
      let bytes = 0;
      await sandbox.commands.run('head -c 5000000 /dev/zero | tr "\\0" x', {
        onStdout: (data) => void (bytes += data.length),
      });
      expect(bytes).toBe(5_000_000);
    });

    it('drives a terminal: size, input, resizing, end', async () => {
      let seen = '';
      const terminal = await sandbox.pty.create({
        cols: 80,
        rows: 24,
        envs: { FROM_PTY: 'yes' },
        timeoutMs: 0,
        onData: (data) => void (seen += Buffer.from(data).toString()),
      });
      const type = (text: string) => sandbox.pty.sendInput(terminal.pid, new TextEncoder().encode(text));
      await type('echo $FROM_PTY-$(tput cols)\n');
      await eventually(() => seen.includes('yes-80'));
      await sandbox.pty.resize(terminal.pid, { cols: 132, rows: 40 });
      await type('echo now-$(tput cols)\n');
      await eventually(() => seen.includes('now-132'));
      await type('exit\n');
      expect((await terminal.wait()).exitCode).toBe(0);
    });

    it('kills a terminal', async () => {
      const terminal = await sandbox.pty.create({ cols: 80, rows: 24, onData: () => {} });
      expect(await sandbox.pty.kill(terminal.pid)).toBe(true);
      await expect(terminal.wait()).rejects.toBeInstanceOf(client.CommandExitError);
    });

    it('has the git helpers', async () => {
      const { git, files } = sandbox;
      const repository = '/home/user/repository';
      await git.init(repository, { initialBranch: 'main' });
      await git.configureUser('Somebody', 'somebody@example.com');
      await files.write(`${repository}/file.txt`, 'one');
      expect((await git.status(repository)).fileStatus.map(({ name }) => name)).toEqual(['file.txt']);
      await git.add(repository);
      await git.commit(repository, 'First');
      expect(await git.status(repository)).toMatchObject({ isClean: true, currentBranch: 'main' });
      await git.createBranch(repository, 'other');
      await git.checkoutBranch(repository, 'main');
      expect(await git.branches(repository)).toMatchObject({
        currentBranch: 'main',
        branches: ['main', 'other'],
      });
      await git.deleteBranch(repository, 'other', { force: true });
      await files.write(`${repository}/file.txt`, 'two');
      await git.restore(repository, { paths: ['file.txt'] });
      expect(await files.read(`${repository}/file.txt`)).toBe('one');
      await git.clone(`file://${repository}`, { path: '/home/user/cloned' });
      expect(await files.read('cloned/file.txt')).toBe('one');
      expect(await git.remoteGet('/home/user/cloned', 'origin')).toBe(`file://${repository}`);
      await git.setConfig('core.editor', 'true', { scope: 'local', path: repository });
      expect(await git.getConfig('core.editor', { scope: 'local', path: repository })).toBe('true');
    });
  });
}
