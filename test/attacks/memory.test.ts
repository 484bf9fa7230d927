import { connect, type Socket } from 'node:net';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { e2bSandbox, type E2bSandbox } from './support/e2b-sandbox.ts';
import { onEachPlatform } from './support/platforms.ts';
import type { Target } from './support/target.ts';
import { SCALE } from './support/scale.ts';
import { watchServer } from './support/watch-server.ts';
import { percentile, withNeighbour } from './support/with-neighbour.ts';
import type { Latencies } from './support/neighbour.ts';

const MiB = 1024 ** 2;
/** Downloads that are never read. */
const READERS = 1000 * Math.min(5, SCALE);
/** What a command takes by itself on a machine with other things to do. */
const EXEC_MS = 300;

/** Directories inside of each other, with names as long as they can be, and files at the bottom. */
const DEEP = `
import os
os.chdir('/home/user')
for depth in range(150):
    os.mkdir('d' * 250)
    os.chdir('d' * 250)
for number in range(4000):
    os.close(os.open(f'f{number}', os.O_CREAT))
`;

onEachPlatform('a tenant who wants the memory of the server', (platform) => {
  let target: Target;
  let sandbox: E2bSandbox;
  beforeAll(async () => {
    target = await platform.start();
    sandbox = await e2bSandbox(target);
    // What is loaded once is there before memory is looked at.
    await target.alice.exec(sandbox.id, ['true']);
    await sandbox.call('filesystem.Filesystem/ListDir', { path: '/' });
  }, 120_000);
  afterAll(() => target?.[Symbol.asyncDispose](), 60_000);

  it(
    'gets no answer of 64 MiB, and six of what is allowed cost little more than they hold',
    { timeout: 60_000 },
    async () => {
      const zeros = (bytes: number) =>
        target.alice.call('POST', `/v1/sandboxes/${sandbox.id}/exec`, {
          body: { argv: ['head', '-c', String(64 * MiB), '/dev/zero'], maxOutputBytes: bytes },
        });
      const { grownBytes, loopMs } = await watchServer(target, async () => {
        const refused = await zeros(64 * MiB);
        expect([refused.status, refused.json.error.message]).toEqual([
          400,
          expect.stringContaining('8388608'),
        ]);
        for (const reply of await Promise.all(Array.from({ length: 6 }, () => zeros(8 * MiB)))) {
          expect([reply.status, reply.json.truncated, reply.json.stdout.length]).toEqual([
            200,
            true,
            8 * MiB,
          ]);
        }
      });
      expect(grownBytes).toBeLessThan(700 * MiB);
      expect(loopMs).toBeLessThan(1000);
    },
  );

  it(
    'cannot have more output collected for a project than its budget of bytes',
    { timeout: 60_000 },
    async () => {
      const body = {
        argv: ['sh', '-c', 'head -c 8388608 /dev/zero; sleep 3'],
        maxOutputBytes: 8 * MiB,
        encoding: 'base64',
      };
      const replies = await Promise.all(
        Array.from({ length: 20 }, () =>
          target.alice.call('POST', `/v1/sandboxes/${sandbox.id}/exec`, { body }),
        ),
      );
      expect(replies.every(({ status }) => status === 200)).toBe(true);
      // Sixteen hold all that there is; of the others the rest is thrown away, and they say so.
      expect(replies.reduce((sum, { json }) => sum + (json.stdout.length * 3) / 4, 0)).toBeLessThanOrEqual(
        129 * MiB,
      );
      expect(replies.some(({ json }) => json.truncated)).toBe(true);
    },
  );

  it('gets listings that are bounded in bytes, not only in entries', { timeout: 120_000 }, async () => {
    await target.alice.exec(sandbox.id, ['python3', '-c', DEEP]);
    const { grownBytes, loopMs } = await watchServer(target, async () => {
      const e2b = await sandbox.call('filesystem.Filesystem/ListDir', { path: '/home/user', depth: 1000 });
      expect([e2b.status, e2b.json.code, e2b.json.message]).toEqual([
        429,
        'resource_exhausted',
        expect.stringContaining('bytes'),
      ]);
      const listed = await target.alice.call(
        'GET',
        `/v1/sandboxes/${sandbox.id}/files/list?path=/home/user&depth=1000`,
      );
      expect([listed.status, listed.json.truncated]).toEqual([200, true]);
      expect(listed.text.length).toBeLessThan(16 * MiB);
    });
    expect(grownBytes).toBeLessThan(500 * MiB);
    expect(loopMs).toBeLessThan(1000);
  });

  it(
    'is held to a number of calls under way, readers that never read among them',
    { timeout: 60_000 },
    async () => {
      await target.alice.exec(sandbox.id, ['truncate', '-s', '1T', '/tmp/sparse']);
      const sockets: Socket[] = [];
      const statuses: number[] = [];
      let latencies: Latencies | undefined;
      const { id: theirs } = await target.bob.create();
      const { grownBytes } = await watchServer(target, async () => {
        const request = `GET /v1/sandboxes/${sandbox.id}/files?path=/tmp/sparse HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer ${target.alice.key}\r\n\r\n`;
        latencies = await withNeighbour(target, theirs, async () => {
          for (let sent = 0; sent < READERS; sent += 500)
            await Promise.all(Array.from({ length: 500 }, () => begun(request)));
        });
      });
      try {
        expect(statuses.filter((status) => status === 200).length).toBeLessThanOrEqual(256);
        expect(statuses.filter((status) => status === 429).length).toBeGreaterThanOrEqual(READERS / 2);
        // The neighbour's calls go on as ever, but for those that a loaded machine delays.
        expect(latencies!.failed).toBe(0);
        expect(percentile(latencies!.healthz, 0.5)).toBeLessThan(200);
        expect(percentile(latencies!.exec, 0.5)).toBeLessThan(200 + EXEC_MS);
        const refused = await target.alice.call('GET', `/v1/sandboxes/${sandbox.id}`);
        expect(refused.json.error).toMatchObject({
          code: 'resource_exhausted',
          details: { budget: 'calls', used: 256, limit: 256 },
        });
        expect(refused.headers.get('retry-after')).toBe('1');
        // The access tokens of the project's sandboxes count along, and other projects do not.
        expect((await sandbox.call('filesystem.Filesystem/Stat', { path: '/' })).status).toBe(429);
        expect((await target.bob.call('GET', '/v1/sandboxes')).status).toBe(200);
        expect(grownBytes).toBeLessThan(500 * MiB);
      } finally {
        for (const socket of sockets) socket.destroy();
      }
      await expect
        .poll(async () => (await target.alice.call('GET', `/v1/sandboxes/${sandbox.id}`)).status, {
          timeout: 5000,
        })
        .toBe(200);

      /** Reads the status line, and never again. The guest serves some of them only when others are done. */
      function begun(request: string): Promise<void> {
        return new Promise((resolve) => {
          const socket = connect({ host: target.host, port: target.port }, () => socket.write(request));
          sockets.push(socket);
          setTimeout(resolve, 3000);
          socket.on('error', () => resolve());
          socket.once('data', (head) => {
            socket.pause();
            statuses.push(Number(/^HTTP\/1\.1 (\d+)/.exec(head.toString('latin1'))?.[1]));
            resolve();
          });
        });
      }
    },
  );

  it('gains nothing by sending a body byte by byte', { timeout: 60_000 }, async () => {
    const bytes = 1_000_000;
    const { grownBytes } = await watchServer(target, async () => {
      const head = `POST /v1/sandboxes/${sandbox.id}/exec HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer ${target.alice.key}\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n`;
      const answer = await target.raw(
        Buffer.concat([Buffer.from(head), Buffer.from('1\r\n \r\n'.repeat(bytes)), Buffer.from('0\r\n\r\n')]),
        {
          timeoutMs: 20_000,
        },
      );
      expect(answer.toString()).toMatch(/^HTTP\/1\.1 400/);
    });
    expect(grownBytes).toBeLessThan(300 * MiB);
  });
});
