import { connect, type Socket } from 'node:net';
import { setTimeout as sleep } from 'node:timers/promises';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { startTestServer, type TestServer } from '../testing/test-server.ts';

let test: TestServer;
beforeAll(async () => {
  test = await startTestServer({ slowestSender: { headersMs: 600, bodyMs: 600 } });
});
afterAll(() => test[Symbol.asyncDispose]());

function dial(): Socket {
  const { hostname, port } = new URL(test.server.url);
  return connect(Number(port), hostname).on('error', () => {});
}

/** Resolves when the connection has ended: closed, or reset because the server did not read all of it. */
function gone(socket: Socket): Promise<'closed'> {
  return new Promise((resolve) => socket.once('close', () => resolve('closed')));
}

/** Sends a byte at a time until the server closes the connection. Resolves with the answer. */
async function trickle(socket: Socket, text: string): Promise<string> {
  let answer = '';
  socket.on('data', (data: Buffer) => (answer += data.toString()));
  const closed = gone(socket);
  for (const byte of text) {
    socket.write(byte);
    if ((await Promise.race([closed, sleep(50)])) === 'closed') break;
  }
  await closed;
  return answer;
}

describe('senders that take their time', () => {
  it('over headers are hung up on, many at once, while others are served', async () => {
    const slow = Array.from({ length: 50 }, () =>
      trickle(dial(), `GET /healthz HTTP/1.1\r\nHost: x\r\nX-Slow: ${'x'.repeat(1000)}`),
    );
    for (let index = 0; index < 20; index++) expect((await test.call('GET', '/healthz')).status).toBe(200);
    for (const answer of await Promise.all(slow)) expect(answer).toMatch(/^$|^HTTP\/1\.1 408 /);
  });

  it('that say nothing at all are hung up on', async () => {
    const socket = dial();
    socket.resume();
    await gone(socket);
    expect(socket.destroyed).toBe(true);
  });

  it('over a JSON body are hung up on', async () => {
    const head = `POST /v1/sandboxes HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer ${test.alice}\r\nContent-Length: 100000\r\n\r\n`;
    const socket = dial();
    socket.write(head);
    expect(await trickle(socket, `{"name":"${'x'.repeat(1000)}`)).not.toMatch(/^HTTP\/1\.1 2/);
    expect((await test.call('GET', '/v1/sandboxes')).json.sandboxes).toEqual([]);
  });

  it('over a file are waited for', async () => {
    const { id } = await test.create();
    const content = 'x'.repeat(30);
    const socket = dial();
    socket.write(
      `PUT /v1/sandboxes/${id}/files?path=/tmp/slow HTTP/1.1\r\nHost: x\r\nConnection: close\r\nAuthorization: Bearer ${test.alice}\r\nContent-Length: ${content.length}\r\n\r\n`,
    );
    expect(await trickle(socket, content)).toMatch(/^HTTP\/1\.1 2/);
    expect((await test.call('GET', `/v1/sandboxes/${id}/files?path=/tmp/slow`)).text).toBe(content);
  });
});
