/** The guest over an exec: a real one, whose bridge an exec of the same protocol runs. */
import { spawn, type ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { WebSocketServer, type WebSocket } from 'ws';
import { drain } from '../../../../../test/conformance/box.ts';
import { guestBinary } from '../../../guest/guest-binary.ts';
import type { GuestLink } from '../../../guest/guest-link.ts';
import { redialling } from '../../../guest/redialling-link.ts';
import { execStream } from './exec-stream.ts';
import { fakeApiServer, type FakeApiServer } from '../testing/fake-api-server.ts';

const exec = { env: { PATH: '/usr/bin:/bin' }, workdir: '/', user: String(process.getuid?.() ?? 0) };

describe('execStream', () => {
  let api: FakeApiServer;
  let directory: string;
  let guest: ChildProcess;
  let link: GuestLink;
  const open = new Set<WebSocket>();

  const stream = (argv: string[], signal?: AbortSignal) =>
    execStream(api.client, { namespace: 'n', pod: 'p', container: 'c', argv, action: 'reach it', signal });

  beforeAll(async () => {
    directory = await mkdtemp(join(tmpdir(), 'cay-exec-'));
    const socket = join(directory, 'guest.sock');
    const sockets = new WebSocketServer({ noServer: true });
    api = await fakeApiServer({
      answer: (_, response) => void response.writeHead(404).end(),
      upgrade(request, raw, head) {
        const argv = new URL(request.url ?? '/', 'http://fake').searchParams.getAll('command');
        if (argv[0] === 'missing') {
          const said = '{"message":"pods not found, really"}';
          return void raw.end(
            `HTTP/1.1 404 Not Found\r\nConnection: close\r\nContent-Length: ${said.length}\r\n\r\n${said}`,
          );
        }
        sockets.handleUpgrade(request, raw, head, (connection) => serveExec(connection, argv, open));
      },
    });
    guest = spawn(guestBinary(), ['serve', socket], { stdio: 'ignore' });
    link = redialling({
      sandbox: 'sbx_a',
      incarnation: 1,
      openFilesLimit: 123,
      dial: (signal) => stream([guestBinary(), 'bridge', socket], signal),
      whyGone: async () => undefined,
    });
    await link.ready({ timeoutMs: 10_000 });
  });

  afterAll(async () => {
    link?.close();
    guest?.kill('SIGKILL');
    await api?.close();
    if (directory) await rm(directory, { recursive: true, force: true });
  });

  it('carries all our frames over one exec', async () => {
    const ran = await Promise.all(
      Array.from({ length: 20 }, async (_, at) =>
        drain(await link.guest.exec({ ...exec, id: `c${at}`, shell: `echo ${at}; exit ${at}` })),
      ),
    );
    expect(ran.map(({ stdout, exitCode }) => [stdout, exitCode])).toEqual(
      Array.from({ length: 20 }, (_, at) => [`${at}\n`, at]),
    );
    expect(open.size).toBe(1);
  });

  it('carries megabytes both ways at the pace of the reader', async () => {
    const content = Buffer.alloc(8_000_000, 'abcdefg');
    const files = link.guest.files(exec.user);
    await files.write(join(directory, 'big'), content);
    const ran = await drain(
      await link.guest.exec({ ...exec, id: 'big', argv: ['cat', join(directory, 'big')] }),
    );
    expect(ran.bytes.equals(content)).toBe(true);
  });

  it('goes on with a command when the connection breaks', async () => {
    const handle = await link.guest.exec({
      ...exec,
      id: 'long',
      shell: 'i=0; while [ $i -lt 50 ]; do echo $i; i=$((i+1)); sleep 0.01; done',
    });
    const ran = drain(handle);
    for (const socket of open) socket.terminate();
    expect((await ran).stdout.trim().split('\n')).toEqual(Array.from({ length: 50 }, (_, at) => String(at)));
  });

  it('gives commands the limit of open files that the runtime of the container could not set', async () => {
    expect(
      (await drain(await link.guest.exec({ ...exec, id: 'files', shell: 'ulimit -n; ulimit -Hn' }))).stdout,
    ).toBe('123\n123\n');
  });

  it('counts the time of processes', async () => {
    const before = (await link.ready()).stats();
    await drain(
      await link.guest.exec({
        ...exec,
        id: 'busy',
        shell: 'i=0; while [ $i -lt 30000 ]; do i=$((i+1)); done',
      }),
    );
    expect((await (await link.ready()).stats()).cpuUsageMs).toBeGreaterThan((await before).cpuUsageMs);
  });

  it('lets a guest start again in the same process, without its former commands', async () => {
    const running = await link.guest.exec({ ...exec, id: 'sleeper', argv: ['sleep', '60'] });
    const { pid } = guest;
    const first = await link.ready();
    await first.shutdown(1000, { again: true });
    const next = await link.ready({ timeoutMs: 5000 });
    expect(next.hello.boot).not.toBe(first.hello.boot);
    expect(await link.guest.commands()).toEqual([]);
    expect(guest.exitCode).toBeNull();
    expect(pid).toBe(guest.pid);
    expect(() => process.kill(running.pid, 0)).toThrow('ESRCH');
    // Whether the guest still gets to tell of its end is a matter of moments.
    expect(['signalled', 'lost']).toContain((await drain(running)).end.kind);
  });

  it('fails with what the program has said, or the API server instead of it', async () => {
    const failing = await stream(['sh', '-c', 'echo it is broken >&2; exit 3']);
    failing.resume();
    const [error] = (await once(failing, 'error')) as [Error];
    expect(error.message).toContain('it is broken');
    await expect(stream(['missing'])).rejects.toMatchObject({
      code: 'not_found',
      message: expect.stringContaining('not found, really') as string,
    });
    await expect(stream(['true'], AbortSignal.abort())).rejects.toMatchObject({ code: 'cancelled' });
  });
});

/** What a kubelet does: channels in the first byte, the end as a status on the third. */
function serveExec(connection: WebSocket, argv: string[], open: Set<WebSocket>): void {
  open.add(connection);
  const child = spawn(argv[0]!, argv.slice(1));
  const send = (channel: number) => (data: Buffer) =>
    connection.send(Buffer.concat([Buffer.from([channel]), data]));
  child.stdout.on('data', send(1));
  child.stderr.on('data', send(2));
  child.stdin.on('error', () => {});
  child.on('close', (code) => {
    const status =
      code === 0
        ? { status: 'Success' }
        : { status: 'Failure', message: `command terminated with exit code ${code}` };
    send(3)(Buffer.from(JSON.stringify(status)));
    connection.close();
  });
  connection.on('message', (data: Buffer) => {
    if (data[0] === 0) child.stdin.write(data.subarray(1));
  });
  connection.on('close', () => {
    open.delete(connection);
    child.kill('SIGKILL');
  });
}
