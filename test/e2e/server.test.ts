import { existsSync } from 'node:fs';
import { readFile, rm, stat } from 'node:fs/promises';
import { connect } from 'node:net';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { isAlive } from '../../server/src/lib/proc.ts';
import { ended, openCay, printed } from '../support/cay.ts';

interface Status {
  running: boolean;
  url: string;
  pid: number;
}

describe('the server', () => {
  it('starts in the background, shows its status, and stops', async () => {
    await using cay = await openCay();
    expect(await cay.run('up', '--detach')).toMatchObject({
      code: 0,
      stdout: expect.stringMatching(
        /^ready at http:\/\/127\.0\.0\.1:\d+ \(process \d+\)\n {2}API key {2}e2b_[0-9a-f]{40}\n$/,
      ) as string,
    });
    expect((await stat(join(cay.dataDir, 'cli.json'))).mode & 0o777).toBe(0o600);
    const { key } = JSON.parse(await readFile(join(cay.dataDir, 'cli.json'), 'utf8')) as { key: string };
    const { url } = await cay.json<Status>('status');
    expect((await fetch(`${url}/v1/sandboxes`, { headers: { authorization: `Bearer ${key}` } })).status).toBe(
      200,
    );
    expect((await fetch(`${url}/readyz`)).status).toBe(200);
    expect((await cay.run('down')).code).toBe(0);
    expect(await cay.run('status')).toMatchObject({
      code: 3,
      stdout: expect.stringContaining('not running') as string,
    });
    expect(await cay.run('ls')).toMatchObject({
      code: 69,
      stderr: expect.stringContaining('hint: start it with "cay up"') as string,
    });
    // The key was printed before, and is never again.
    expect((await cay.run('up', '--detach')).stdout).not.toContain('e2b_');
    expect((await cay.run('ls')).code).toBe(0);
  });

  it('runs in the foreground until SIGTERM', async () => {
    await using cay = await openCay();
    const server = cay.start('up');
    const end = ended(server);
    await expect.poll(async () => (await cay.run('status')).code, { timeout: 20_000 }).toBe(0);
    server.kill('SIGTERM');
    const { code, stderr } = await end;
    expect(code).toBe(0);
    const lines = stderr
      .trim()
      .split('\n')
      .map((line) => JSON.parse(line) as { msg: string });
    expect(lines.map(({ msg }) => msg)).toEqual(expect.arrayContaining(['listening', 'stopping', 'closed']));
    expect(stderr).not.toContain('e2b_');
  });

  it('is the only one of its data directory', async () => {
    await using cay = await openCay();
    await cay.run('up', '-d');
    const { pid } = await cay.json<Status>('status');
    for (const flags of [['up'], ['up', '-d']]) {
      expect(await cay.run(...flags)).toMatchObject({
        code: 65,
        stderr: expect.stringContaining(`another server has it (process ${pid})`) as string,
      });
    }
    expect((await cay.json<Status>('status')).pid).toBe(pid);
  });

  it.each(['runc', 'runsc'])(
    'killed and started again has its %s sandboxes as they were',
    async (runtime) => {
      await using cay = await openCay({ CAY_RUNTIME: runtime, CAY_POOL: '1' });
      await cay.run('create', '--name', 'survivor');
      const background = (
        await cay.run('exec', '-d', 'survivor', '--', 'sh', '-c', 'echo $$ > pid; exec sleep 600')
      ).stdout.trim();
      const { pid } = await cay.json<Status>('status');
      process.kill(pid, 'SIGKILL');
      await expect.poll(() => isAlive(pid)).toBe(false);
      expect((await cay.run('up', '-d')).code).toBe(0);
      expect(
        await cay.run('exec', 'survivor', '--', 'sh', '-c', 'kill -0 $(cat pid) && echo alive'),
      ).toMatchObject({
        code: 0,
        stdout: 'alive\n',
      });
      const { commands } = await cay.json<{ commands: { id: string; end?: unknown }[] }>(
        'inspect',
        'survivor',
      );
      expect(commands.find(({ id }) => id === background)?.end).toBeUndefined();
    },
  );

  it('leaves its sandboxes running when it is stopped', async () => {
    await using cay = await openCay({ CAY_RUNTIME: 'runc' });
    await cay.run('create', '--name', 'stays');
    await cay.run('exec', '-d', 'stays', '--', 'sh', '-c', 'echo $$ > pid; exec sleep 600');
    await cay.run('down');
    await cay.run('up', '-d');
    expect(
      (await cay.run('exec', 'stays', '--', 'sh', '-c', 'kill -0 $(cat pid) && echo alive')).stdout,
    ).toBe('alive\n');
  });

  it('removes everything only when that is confirmed', async () => {
    const cay = await openCay({ CAY_RUNTIME: 'runc' });
    await cay.run('create');
    expect(await cay.run('down', '--destroy')).toMatchObject({
      code: 64,
      stderr: expect.stringContaining('hint: give --yes') as string,
    });
    expect((await cay.run('ls', '-q')).stdout).toMatch(/^sbx_/);
    await cay[Symbol.asyncDispose]();
    expect(existsSync(cay.dataDir)).toBe(false);
    expect(await readFile('/proc/mounts', 'utf8')).not.toContain(cay.dataDir);
  });

  it('gives the command line another key when its file was lost', async () => {
    await using cay = await openCay();
    await cay.run('up', '-d', '--backend', 'memory');
    await cay.run('down');
    await rm(join(cay.dataDir, 'cli.json'));
    await cay.run('up', '-d', '--backend', 'memory');
    expect((await cay.run('ls')).code).toBe(0);
  });

  it('does not listen beyond this machine without TLS', async () => {
    await using cay = await openCay();
    expect(await cay.run('up', '--backend', 'memory', '--listen', '0.0.0.0:0')).toMatchObject({
      code: 65,
      stderr: expect.stringContaining('unencrypted') as string,
    });
  });

  it('is started once by several who need it at the same time', async () => {
    await using cay = await openCay({ CAY_RUNTIME: 'runc' });
    const all = await Promise.all(
      Array.from({ length: 3 }, (_, index) => cay.run('run', '--', 'echo', String(index))),
    );
    expect(all.map(({ stdout }) => stdout)).toEqual(['0\n', '1\n', '2\n']);
  });

  it('works without anything else on the memory backend', async () => {
    await using cay = await openCay({ CAY_BACKEND: 'memory' });
    expect(await cay.run('run', '--', 'echo', 'imitated')).toMatchObject({ code: 0, stdout: 'imitated\n' });
  });
});

/** Resets at once, floods and resets, ends its side and reads on, or answers, as the first byte asks. */
const HOSTILE = `
import socket, socketserver, struct
class Handler(socketserver.BaseRequestHandler):
    def handle(self):
        reset = lambda: self.request.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack('ii', 1, 0))
        want = self.request.recv(1)
        if want == b'r': reset()
        elif want == b'f':
            try:
                for _ in range(2000): self.request.sendall(b'x' * 65536)
            except OSError: pass
            reset()
        elif want == b'h':
            self.request.shutdown(socket.SHUT_WR)
            while self.request.recv(65536): pass
        else: self.request.sendall(b'fine')
class Server(socketserver.ThreadingTCPServer):
    allow_reuse_address = True
    daemon_threads = True
Server(('127.0.0.1', 8000), Handler).serve_forever()
`;

describe('cay forward', () => {
  it('outlives a program inside that resets, floods and half-closes', async () => {
    await using cay = await openCay({ CAY_RUNTIME: 'runc' });
    await cay.run('create', '--name', 'odd');
    await cay.run('exec', '-d', 'odd', '--', 'python3', '-c', HOSTILE);
    const forward = cay.start('forward', 'odd', '0:8000');
    const end = ended(forward);
    const port = Number(/127\.0\.0\.1:(\d+) leads to/.exec(await printed(forward, 'leads to'))![1]);
    const ask = (what: string, reads = true) =>
      new Promise<string>((resolve) => {
        const socket = connect(port, '127.0.0.1', () => socket.write(what));
        let text = '';
        socket.on('error', () => {}).on('close', () => resolve(text.slice(0, 4)));
        if (reads) socket.on('data', (data: Buffer) => (text = (text + data.toString()).slice(0, 4)));
        else setTimeout(() => socket.destroy(), 3000);
        if (what === 'h') socket.on('end', () => socket.end('y'.repeat(1_000_000)));
      });
    await expect.poll(() => ask('a'), { timeout: 10_000 }).toBe('fine');
    const unread = Array.from({ length: 5 }, () => ask('f', false));
    await Promise.all(['r', 'h', 'r', 'f', 'h'].map((what) => ask(what)));
    const rss = async () =>
      Number(/VmRSS:\s+(\d+)/.exec(await readFile(`/proc/${forward.pid}/status`, 'latin1'))![1]) / 1024;
    expect(await rss()).toBeLessThan(400);
    expect(await ask('a')).toBe('fine');
    await Promise.all(unread);
    expect(await ask('a')).toBe('fine');
    forward.kill('SIGINT');
    expect((await end).code).toBe(0);
  });

  it.each(['runc', 'runsc'])('leads to a port inside on %s', async (runtime) => {
    await using cay = await openCay({ CAY_RUNTIME: runtime });
    await cay.run('create', '--name', 'web');
    await cay.run(
      'exec',
      'web',
      '--',
      'sh',
      '-c',
      'mkdir www; head -c 3000000 /dev/zero > www/big; echo hello > www/index.html',
    );
    await cay.run(
      'exec',
      '-d',
      '-w',
      '/home/user/www',
      'web',
      '--',
      'python3',
      '-m',
      'http.server',
      '8000',
      '--bind',
      '127.0.0.1',
    );
    const forward = cay.start('forward', 'web', '0:8000');
    const end = ended(forward);
    const port = /127\.0\.0\.1:(\d+) leads to port 8000 of web/.exec(await printed(forward, 'leads to'))![1];
    const get = (path: string) =>
      fetch(`http://127.0.0.1:${port}${path}`).then(
        (response) => response.text(),
        () => '',
      );
    await expect.poll(() => get('/'), { timeout: 10_000 }).toBe('hello\n');
    const all = await Promise.all(Array.from({ length: 5 }, () => get('/big')));
    expect(all.map((text) => text.length)).toEqual(Array.from({ length: 5 }, () => 3_000_000));
    forward.kill('SIGINT');
    expect((await end).code).toBe(0);
  });
});
