/** HTTP/2 on the port of the API, without TLS by prior knowledge. */
import { once } from 'node:events';
import { connect, constants, type ClientHttp2Session, type ClientHttp2Stream } from 'node:http2';
import { connect as dial, type Socket } from 'node:net';
import { setTimeout as sleep } from 'node:timers/promises';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { startTestServer, type TestServer } from '../../testing/test-server.ts';
import { frame, PREFACE } from '../../../../../test/support/http2-frame.ts';

let test: TestServer;
const sessions = new Set<ClientHttp2Session>();
beforeAll(async () => {
  test = await startTestServer({ slowestSender: { headersMs: 2_000, bodyMs: 600 } });
});
afterAll(async () => {
  for (const session of sessions) session.destroy();
  await test[Symbol.asyncDispose]();
});

function open(): ClientHttp2Session {
  const session = connect(test.server.url);
  session.on('error', () => {});
  sessions.add(session);
  return session;
}

interface Answer {
  status: number | undefined;
  headers: Record<string, unknown>;
  text: string;
  /** The code with which the stream was closed. */
  code: number | undefined;
}

function answerOf(stream: ClientHttp2Stream): Promise<Answer> {
  return new Promise((resolve) => {
    const answer: Answer = { status: undefined, headers: {}, text: '', code: undefined };
    stream.on('response', (headers) => {
      answer.status = headers[':status'];
      answer.headers = headers;
    });
    stream.on('data', (data: Buffer) => (answer.text += data.toString('latin1')));
    stream.on('error', () => {});
    stream.on('close', () => resolve({ ...answer, code: stream.rstCode }));
  });
}

async function call(
  session: ClientHttp2Session,
  method: string,
  path: string,
  options: { body?: string | Buffer; headers?: Record<string, string> } = {},
): Promise<Answer> {
  const stream = session.request({
    ':method': method,
    ':path': path,
    authorization: `Bearer ${test.alice}`,
    ...(options.body !== undefined && { 'content-type': 'application/json' }),
    ...options.headers,
  });
  stream.end(options.body);
  return answerOf(stream);
}

describe('a client of HTTP/2', () => {
  it('uses the API, many calls at once on one connection', async () => {
    const session = open();
    const made = await call(session, 'POST', '/v1/sandboxes', { body: '{"labels":{"by":"h2"}}' });
    expect([made.status, JSON.parse(made.text)]).toMatchObject([201, { labels: { by: 'h2' } }]);
    const all = await Promise.all(
      Array.from({ length: 300 }, (_, index) =>
        call(session, 'GET', `/v1/sandboxes?limit=${(index % 9) + 1}`),
      ),
    );
    expect(all.every(({ status, code }) => status === 200 && code === constants.NGHTTP2_NO_ERROR)).toBe(true);
    session.close();
  });

  it('gets errors, answers without a body, and heads', async () => {
    const session = open();
    expect(await call(session, 'GET', '/v1/nothing')).toMatchObject({ status: 404 });
    const { id } = await test.create();
    expect(await call(session, 'DELETE', `/v1/sandboxes/${id}`)).toMatchObject({ status: 204, text: '' });
    expect(await call(session, 'HEAD', '/healthz')).toMatchObject({ text: '', code: 0 });
    expect(
      await call(session, 'GET', '/healthz', { headers: { ':authority': 'x', host: 'other.example' } }),
    ).toMatchObject({
      status: 400,
    });
    session.close();
  });

  it('sends and reads large files, at the speed of the slower side', async () => {
    const { id } = await test.create();
    const content = Buffer.alloc(5_000_000, 'abcdefghij');
    const session = open();
    const path = `/v1/sandboxes/${id}/files?path=/tmp/large`;
    expect(await call(session, 'PUT', path, { body: content })).toMatchObject({ status: 200 });
    const read = await call(session, 'GET', path);
    expect(read.text.length).toBe(content.length);
    expect(Buffer.from(read.text, 'latin1').equals(content)).toBe(true);
    session.close();
  });

  it('is refused before it has sent all of a body, and keeps its connection', async () => {
    const session = open();
    const stream = session.request({
      ':method': 'POST',
      ':path': '/v1/sandboxes',
      authorization: 'Bearer no',
    });
    const answer = answerOf(stream);
    const sending = setInterval(() => stream.writable && stream.write(Buffer.alloc(10_000)), 10);
    // The server asks for no more of the body, with NO_ERROR. Node's client leaves closing its side to its
    // user.
    stream.once('aborted', () => {
      clearInterval(sending);
      stream.destroy();
    });
    expect(await answer).toMatchObject({ status: 401, code: constants.NGHTTP2_NO_ERROR });
    expect(await call(session, 'GET', '/healthz')).toMatchObject({ status: 200 });
    session.close();
  });

  it('ends a stream of its own, which ends the request and nothing else', async () => {
    const { id } = await test.create();
    const session = open();
    const stream = session.request({
      ':method': 'GET',
      ':path': `/v1/events?follow=true&sandbox=${id}`,
      authorization: `Bearer ${test.alice}`,
    });
    stream.on('error', () => {});
    await once(stream, 'response');
    stream.close(constants.NGHTTP2_CANCEL);
    expect(await call(session, 'GET', '/healthz')).toMatchObject({ status: 200 });
    session.close();
  });

  it('sees a preview of the host that it names', async () => {
    const { id } = await test.create();
    const host = `8080-${id.replace('sbx_', '')}.localhost`;
    const session = open();
    const answer = await call(session, 'GET', '/', { headers: { ':authority': host } });
    expect(answer.status).not.toBe(200);
    expect(answer.text).not.toContain('"alive"');
    session.close();
  });

  it('cannot open tunnels', async () => {
    const session = open();
    const stream = session.request({ ':method': 'CONNECT', ':authority': 'example.com:443' });
    expect(await answerOf(stream)).toMatchObject({ status: 405 });
    session.close();
  });

  it('does not disturb one of HTTP/1 that sends all at once, or piece by piece', async () => {
    const request = 'GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n';
    const answers = await Promise.all(
      Array.from({ length: 60 }, async (_, index) => {
        const socket = raw();
        let text = '';
        const count = () => text.match(/HTTP\/1\.1 200 /g)?.length;
        socket.on('data', (data: Buffer) => {
          text += data.toString();
          // One that ends sooner would have no answer: Node takes its end for that of the connection.
          if (count() === 2) socket.end();
        });
        if (index % 3 === 0) socket.write(request + request);
        else {
          const at = (index * 7) % request.length;
          socket.write(request.slice(0, at));
          await sleep(5);
          socket.write(request.slice(at) + request);
        }
        await new Promise<void>((resolve) => socket.once('close', () => resolve()));
        return count();
      }),
    );
    expect(new Set(answers)).toEqual(new Set([2]));
  });

  it('may ask for an upgrade of HTTP/1, which is passed over', async () => {
    const response = await new Promise<string>((resolve) => {
      const socket = raw();
      let text = '';
      socket.on('data', (data: Buffer) => (text += data.toString())).on('close', () => resolve(text));
      socket.write(
        'GET /healthz HTTP/1.1\r\nHost: x\r\nConnection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQAAP__\r\n\r\n',
      );
      setTimeout(() => socket.end(), 300);
    });
    expect(response).toMatch(/^HTTP\/1\.1 200 /);
  });
});

function raw(): Socket {
  const { hostname, port } = new URL(test.server.url);
  return dial(Number(port), hostname).on('error', () => {});
}

const HELLO = Buffer.concat([Buffer.from(PREFACE), frame(4, 0, 0)]);

function drained(socket: Socket): Promise<void> {
  return new Promise((resolve) => socket.once('drain', () => resolve()));
}

/**
 * Writes the same bytes again and again until the server ends the connection. Resolves with how much it took.
 */
async function flood(bytes: Buffer, everyMs = 0): Promise<number> {
  const socket = raw();
  socket.resume();
  const closed = new Promise<void>((resolve) => socket.once('close', () => resolve()));
  socket.write(HELLO);
  const deadline = performance.now() + 15_000;
  let sent = 0;
  while (!socket.destroyed && performance.now() < deadline) {
    sent += bytes.length;
    if (!socket.write(bytes)) await Promise.race([drained(socket), closed]);
    else await sleep(everyMs);
  }
  const ended = socket.destroyed;
  socket.destroy();
  expect(ended).toBe(true);
  return sent;
}

/** The header block of GET /healthz, with literals that are not indexed. */
function requestBlock(): Buffer {
  const literal = (name: string, value: string) =>
    Buffer.concat([
      Buffer.from([0x00, name.length]),
      Buffer.from(name),
      Buffer.from([value.length]),
      Buffer.from(value),
    ]);
  return Buffer.concat([
    literal(':method', 'GET'),
    literal(':scheme', 'http'),
    literal(':path', '/healthz'),
    literal(':authority', 'x'),
  ]);
}

describe('a hostile client of HTTP/2', () => {
  it.each([
    ['pings', frame(6, 0, 0, Buffer.alloc(8))],
    ['settings', frame(4, 0, 0)],
    ['answers to settings', frame(4, 1, 0)],
    ['priorities', frame(2, 0, 1, Buffer.from([0, 0, 0, 0, 16]))],
    ['window updates', frame(8, 0, 0, Buffer.from([0, 0, 0, 1]))],
    ['unknown frames', frame(0x42, 0, 0, Buffer.alloc(100))],
    ['resets of streams that never were', frame(3, 0, 1, Buffer.alloc(4))],
  ])('that floods the server with %s is cut off', async (_name, bytes) => {
    const many = Buffer.concat(Array.from({ length: Math.ceil(4096 / bytes.length) }, () => bytes));
    expect(await flood(many)).toBeLessThan(64 * 1024 * 1024);
    expect((await test.call('GET', '/healthz')).status).toBe(200);
  });

  it('that opens streams and resets them is cut off', async () => {
    const socket = raw();
    socket.resume();
    socket.write(HELLO);
    let stream = 1;
    for (; stream < 40_000 && !socket.destroyed; stream += 2) {
      socket.write(
        Buffer.concat([
          frame(1, 5, stream, requestBlock()),
          frame(3, 0, stream, Buffer.from([0, 0, 0, constants.NGHTTP2_CANCEL])),
        ]),
      );
      if (stream % 200 === 1) await sleep(1);
    }
    expect(socket.destroyed).toBe(true);
    expect((await test.call('GET', '/healthz')).status).toBe(200);
  });

  it('that sends headers without end, or many, is cut off or refused', async () => {
    const session = open();
    const many = Object.fromEntries(Array.from({ length: 300 }, (_, index) => [`x-${index}`, 'x']));
    expect((await call(session, 'GET', '/healthz', { headers: many })).status).toBeUndefined();
    session.destroy();
    const large = open();
    const { status } = await call(large, 'GET', '/healthz', { headers: { 'x-large': 'x'.repeat(30_000) } });
    expect(status === undefined || status === 431).toBe(true);
    large.destroy();
    const socket = raw();
    socket.resume();
    socket.write(Buffer.concat([HELLO, frame(1, 1, 1, requestBlock())]));
    const continued = frame(9, 0, 1, Buffer.from([0x00, 1, 0x78, 1, 0x78]));
    for (let count = 0; count < 100_000 && !socket.destroyed; count++) {
      socket.write(continued);
      if (count % 100 === 0) await sleep(1);
    }
    expect(socket.destroyed).toBe(true);
  });

  it('that takes its time over the preface, its first stream or its headers is cut off', async () => {
    const silent = raw();
    const preface = raw();
    preface.write(PREFACE.slice(0, 10));
    const settings = raw();
    settings.write(HELLO);
    const headers = raw();
    headers.write(Buffer.concat([HELLO, frame(1, 1, 1, requestBlock())]));
    const all = [silent, preface, settings, headers];
    for (const socket of all) socket.resume();
    await Promise.all(all.map((socket) => new Promise<void>((resolve) => socket.once('close', resolve))));
  });

  it('that takes its time over a JSON body loses the stream', async () => {
    const session = open();
    const stream = session.request({
      ':method': 'POST',
      ':path': '/v1/sandboxes',
      authorization: `Bearer ${test.alice}`,
      'content-type': 'application/json',
    });
    const answer = answerOf(stream);
    stream.write('{"name":"');
    const sending = setInterval(() => stream.writable && stream.write('x'), 50);
    const { status } = await answer;
    clearInterval(sending);
    expect(status === undefined || status >= 400).toBe(true);
    expect(await call(session, 'GET', '/healthz')).toMatchObject({ status: 200 });
    session.close();
  });

  it('has 100 streams at once', async () => {
    const session = open();
    await once(session, 'remoteSettings');
    expect(session.remoteSettings).toMatchObject({ maxConcurrentStreams: 100, maxHeaderListSize: 16_384 });
    session.close();
  });
});
