import { once } from 'node:events';
import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { connect as connectHttp2, constants } from 'node:http2';
import { request } from 'node:https';
import { connect as connectPlain } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { connect } from 'node:tls';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { WebSocket } from 'ws';
import { pino } from 'pino';
import { memoryBackend } from '../../backends/memory/memory.ts';
import { serve, type RunningServer } from '../../serve.ts';
import { ownCertificate } from '../../../../test/support/own-certificate.ts';

let directory: string;
let server: RunningServer;
let ca: Buffer;
let address: { host: string; port: number; servername: string };

beforeAll(async () => {
  directory = mkdtempSync(join(tmpdir(), 'cay-tls-'));
  const [keyFile, certFile] = [join(directory, 'key.pem'), join(directory, 'cert.pem')];
  ownCertificate({ keyFile, certFile }, ['localhost']);
  ca = readFileSync(certFile);
  server = await serve({
    backend: memoryBackend(),
    dataDir: join(directory, 'data'),
    // With TLS nothing else is needed to listen beyond this machine.
    host: '0.0.0.0',
    port: 0,
    tls: { keyFile, certFile },
    slowestSender: { headersMs: 600 },
    log: pino({ level: 'silent' }),
  });
  address = { host: '127.0.0.1', port: Number(new URL(server.url).port), servername: 'localhost' };
});
afterAll(async () => {
  await server.close();
  rmSync(directory, { recursive: true, force: true });
});

interface Answer {
  status: number | undefined;
  // Tests look into answers of every shape.
  // oxlint-disable-next-line typescript/no-explicit-any
  json: any;
}

async function call(method: string, path: string, body?: unknown): Promise<Answer> {
  const sent = request({
    ...address,
    ca,
    method,
    path,
    agent: false,
    headers: { authorization: `Bearer ${server.adminKey}` },
  });
  sent.end(body === undefined ? undefined : JSON.stringify(body));
  const [answer] = (await once(sent, 'response')) as [import('node:http').IncomingMessage];
  let text = '';
  for await (const chunk of answer) text += String(chunk);
  return { status: answer.statusCode, json: JSON.parse(text) };
}

describe('a server with a certificate', () => {
  it('is reached over TLS, and gives addresses that are', async () => {
    expect(server.url).toMatch(/^https:\/\/127\.0\.0\.1:\d+$/);
    const { status, json } = await call('POST', '/v1/sandboxes', { ports: [80] });
    expect(status).toBe(201);
    expect(json.ports[0].url).toMatch(/^https:\/\//);
    expect(
      (await call('POST', `/v1/sandboxes/${json.id}/exec`, { argv: ['echo', 'sealed'] })).json.stdout,
    ).toBe('sealed\n');
  });

  it('carries WebSockets', async () => {
    const { id } = (await call('POST', '/v1/sandboxes', {})).json as { id: string };
    const socket = new WebSocket(`wss://127.0.0.1:${address.port}/v1/sandboxes/${id}/exec`, {
      ca,
      headers: { authorization: `Bearer ${server.adminKey}` },
    });
    await once(socket, 'open');
    const messages: string[] = [];
    socket.on('message', (data: Buffer) => messages.push(data.toString()));
    socket.send(JSON.stringify({ exec: { argv: ['echo', 'over TLS'] } }));
    await once(socket, 'close');
    expect(messages.join('')).toContain('over TLS');
  });

  it('speaks HTTP/2 to those who offer it, and HTTP/1 to others', async () => {
    const session = connectHttp2(server.url, { ca, servername: 'localhost' });
    const stream = session.request({ ':path': '/v1/sandboxes', authorization: `Bearer ${server.adminKey}` });
    const [headers] = (await once(stream, 'response')) as [import('node:http2').IncomingHttpHeaders];
    expect(headers[':status']).toBe(200);
    let text = '';
    for await (const chunk of stream) text += String(chunk);
    expect(JSON.parse(text)).toHaveProperty('sandboxes');
    session.close();
    for (const [offered, chosen] of [
      [['http/1.1'], 'http/1.1'],
      [['http/1.1', 'h2'], 'http/1.1'],
      [['other', 'h2', 'http/1.1'], 'h2'],
      [[], false],
    ] as const) {
      const socket = connect({ ...address, ca, ALPNProtocols: [...offered] });
      await once(socket, 'secureConnect');
      expect(socket.alpnProtocol).toBe(chosen);
      socket.destroy();
    }
  });

  it('cuts off floods of HTTP/2', async () => {
    const socket = connect({ ...address, ca, ALPNProtocols: ['h2'] });
    await once(socket, 'secureConnect');
    socket.on('error', () => {}).resume();
    const settings = Buffer.from([0, 0, 0, 4, 0, 0, 0, 0, 0]);
    // Window updates, which nothing answers.
    const update = Buffer.from([0, 0, 4, 8, 0, 0, 0, 0, 0, 0, 0, 0, 1]);
    const many = Buffer.concat(Array.from({ length: 1000 }, () => update));
    socket.write(Buffer.concat([Buffer.from('PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n'), settings]));
    const sending = setInterval(() => socket.write(many), 5);
    await new Promise<void>((resolve) => socket.once('close', () => resolve()));
    clearInterval(sending);
    expect((await call('GET', '/healthz')).status).toBe(200);
  });

  it('cuts off one answer, and not the others on its connection', async () => {
    const { id } = (await call('POST', '/v1/sandboxes', {})).json as { id: string };
    const session = connectHttp2(server.url, { ca, servername: 'localhost' });
    const authorization = `Bearer ${server.adminKey}`;
    const follow = (query: string) =>
      session.request({ ':path': `/v1/events?follow=true${query}`, authorization });
    const [kept, ended] = [follow(''), follow(`&sandbox=${id}`)];
    await Promise.all([once(kept, 'response'), once(ended, 'response')]);
    ended.on('error', () => {}).close(constants.NGHTTP2_CANCEL);
    await once(ended, 'close');
    const removed = session.request({ ':method': 'DELETE', ':path': `/v1/sandboxes/${id}`, authorization });
    removed.resume();
    const [data] = (await once(kept, 'data')) as [Buffer];
    expect(data.length).toBeGreaterThan(0);
    session.destroy();
  });

  it('is not believed by those who do not know the certificate', async () => {
    await expect(fetch(`${server.url}/healthz`)).rejects.toMatchObject({
      cause: { code: 'DEPTH_ZERO_SELF_SIGNED_CERT' },
    });
  });

  it('speaks no TLS older than 1.2', async () => {
    const socket = connect({
      ...address,
      ca,
      minVersion: 'TLSv1',
      maxVersion: 'TLSv1.1',
      ciphers: 'DEFAULT@SECLEVEL=0',
    });
    // The alert is the server's.
    await expect(once(socket, 'secureConnect')).rejects.toMatchObject({
      code: 'ERR_SSL_TLSV1_ALERT_PROTOCOL_VERSION',
    });
  });

  it('says nothing to those who speak without', async () => {
    const socket = connectPlain(address.port, address.host);
    socket.end(`GET /v1/version HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer ${server.adminKey}\r\n\r\n`);
    let text = '';
    await (async () => {
      for await (const chunk of socket) text += String(chunk);
    })().catch(() => {});
    expect(text).not.toContain('"version"');
  });

  it('hangs up on those who are slow to say what they want', async () => {
    const socket = connect({ ...address, ca });
    await once(socket, 'secureConnect');
    socket.write('GET /healthz HTTP/1.1\r\nHost:');
    socket.on('error', () => {}).resume();
    await once(socket, 'close');
    expect((await call('GET', '/healthz')).status).toBe(200);
  });
});
