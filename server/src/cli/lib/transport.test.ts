import { subscribe, unsubscribe } from 'node:diagnostics_channel';
import { once } from 'node:events';
import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { createServer, type Server } from 'node:http';
import { createServer as createSecureServer } from 'node:https';
import type { AddressInfo, Socket } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { bytesOf, connect } from '@cay/sdk/client';
import { WebSocketServer, type WebSocket } from 'ws';
import { afterEach, describe, expect, it, onTestFinished } from 'vitest';
import { inCliWords } from './cli-words.ts';
import { makeCertificate } from './make-certificate.ts';
import { transportOptions } from './transport.ts';

let server: Server | undefined;
afterEach(() => {
  server?.closeAllConnections();
  server?.close();
});

async function listening(made: Server): Promise<string> {
  server = made;
  await new Promise<void>((resolve) => made.listen(0, '127.0.0.1', resolve));
  return `http://127.0.0.1:${(made.address() as AddressInfo).port}`;
}

const open = (url: string, certificate?: string) =>
  connect({ url, apiKey: 'k', ...transportOptions(certificate) });

describe('the transport', () => {
  it('sends JSON and streams, and reads answers whole or in pieces', async () => {
    const url = await listening(
      createServer((request, response) => {
        response.setHeader('content-type', 'application/json');
        request.pipe(response);
      }),
    );
    const transport = open(url);
    expect(await transport.json('POST', '/', { json: { a: 1 } })).toEqual({ a: 1 });
    async function* body() {
      yield Buffer.alloc(100_000, 'a');
      yield Buffer.from('b');
    }
    const answer = await transport.request('PUT', '/', { body: body() });
    expect((await answer.arrayBuffer()).byteLength).toBe(100_001);
  });

  it('gives what a reader leaves unread back to the connection, at its pace', async () => {
    let sent = 0;
    const url = await listening(
      createServer((_, response) => {
        const more = () => {
          while (!response.destroyed && response.write(Buffer.alloc(65_536))) sent += 65_536;
        };
        response.on('drain', more);
        more();
      }),
    );
    const closed = new Promise((resolve) =>
      server!.on('connection', (socket) => socket.on('close', resolve)),
    );
    let got = 0;
    for await (const chunk of bytesOf(await open(url).request('GET', '/'))) {
      got += chunk.length;
      await new Promise((resolve) => setTimeout(resolve, 20));
      if (got > 500_000) break;
    }
    await closed;
    expect(sent).toBeLessThan(32 * 1024 * 1024);
  });

  it('takes an answer that comes before the body has ended', async () => {
    const url = await listening(
      createServer((_, response) => {
        response.writeHead(400, { 'content-type': 'application/json' });
        response.end(JSON.stringify({ error: { code: 'invalid_argument', message: 'no' } }));
      }),
    );
    async function* endless() {
      for (;;) yield Buffer.alloc(1024 * 1024);
    }
    await expect(open(url).request('PUT', '/', { body: endless() })).rejects.toMatchObject({
      code: 'invalid_argument',
    });
  });

  it('rejects with the failure of the source, and with an answer that is cut off', async () => {
    const url = await listening(
      createServer((request, response) => {
        request.resume();
        request.on('end', () => {
          response.writeHead(200, { 'content-length': '10' });
          response.write('half');
          setTimeout(() => response.destroy(), 20);
        });
      }),
    );
    async function* failing() {
      yield Buffer.from('a');
      throw new Error('the source broke');
    }
    await expect(open(url).request('PUT', '/', { body: failing() })).rejects.toMatchObject({
      code: 'unavailable',
      message: expect.stringContaining('the source broke'),
    });
    const cut = await open(url).request('GET', '/');
    await expect(cut.text()).rejects.toThrow();
    const streamed = await open(url).request('GET', '/');
    await expect(Array.fromAsync(bytesOf(streamed))).rejects.toThrow();
  });

  it('stops waiting when it is told to', async () => {
    const url = await listening(createServer(() => {}));
    const signal = AbortSignal.timeout(50);
    await expect(open(url).request('GET', '/', { signal })).rejects.toMatchObject({ code: 'cancelled' });
  });

  it('uses a connection again, and makes another if the server has closed it', async () => {
    let connections = 0;
    const clients: Socket[] = [];
    const opened = (message: unknown) => clients.push((message as { socket: Socket }).socket);
    subscribe('net.client.socket', opened);
    onTestFinished(() => void unsubscribe('net.client.socket', opened));
    const url = await listening(
      createServer((request, response) => {
        request.resume();
        response.end('{}');
        if (request.url === '/last') response.on('finish', () => request.socket.resetAndDestroy());
      }),
    );
    server!.on('connection', () => connections++);
    const transport = open(url);
    for (const path of ['/', '/', '/last']) await transport.json('GET', path);
    expect(connections).toBe(1);
    // What changes something is not sent twice: on a connection whose reset has not arrived yet it fails.
    if (!clients[0]!.closed) await once(clients[0]!, 'close');
    await transport.json('POST', '/', { json: {} });
    expect(connections).toBe(2);
  });

  it('gives the cause of a failure in words', async () => {
    const url = await listening(createServer());
    server!.close();
    const error = inCliWords(
      await open(url)
        .request('GET', '/')
        .catch((failure: unknown) => failure),
    );
    expect(error.code).toBe('unavailable');
    expect(error.message).toBe(`Cannot reach the server at ${url}: nothing listens there`);
  });

  it('opens WebSockets that can pause', async () => {
    const url = await listening(createServer());
    new WebSocketServer({ server: server!, handleProtocols: () => 'cay.v1' }).on('connection', (socket) => {
      socket.on('message', (data, binary) => socket.send(data, { binary }));
    });
    const socket = (await open(url).socket('/')) as unknown as WebSocket;
    const got: unknown[] = [];
    socket.addEventListener('message', ({ data }) => got.push(data));
    socket.pause();
    socket.send('text');
    socket.send(Buffer.alloc(300_000, 'x'));
    await new Promise((resolve) => setTimeout(resolve, 50));
    expect(got).toEqual([]);
    socket.resume();
    await expect.poll(() => got.length).toBe(2);
    expect(got[0]).toBe('text');
    expect((got[1] as ArrayBuffer).byteLength).toBe(300_000);
    socket.close();
  });

  it('rejects where there is no WebSocket', async () => {
    const url = await listening(createServer((_, response) => response.writeHead(404).end()));
    await expect(open(url).socket('/')).rejects.toMatchObject({ code: 'unavailable' });
  });
});

describe('over TLS', () => {
  it('trusts the one certificate that the data directory names, and no other', async () => {
    const directory = mkdtempSync(join(tmpdir(), 'cay-tls-'));
    onTestFinished(() => rmSync(directory, { recursive: true, force: true }));
    const { certificate, key } = await makeCertificate(join(directory, 'own'), 'box.localhost');
    const other = await makeCertificate(join(directory, 'other'), 'box.localhost');
    const made = createSecureServer(
      { cert: readFileSync(certificate), key: readFileSync(key) },
      (_, response) => response.end('{"a":1}'),
    );
    new WebSocketServer({ server: made }).on('connection', (socket) => {
      socket.on('message', (data) => socket.send(data));
    });
    const url = (await listening(made)).replace('http:', 'https:');

    const transport = open(url, certificate);
    expect(await transport.json('GET', '/')).toEqual({ a: 1 });
    const socket = (await transport.socket('/')) as unknown as WebSocket;
    socket.send('hello');
    const [data] = (await once(socket, 'message')) as [ArrayBuffer];
    expect(Buffer.from(data).toString()).toBe('hello');
    socket.close();

    for (const file of [undefined, other.certificate, join(directory, 'none')])
      await expect(open(url, file).json('GET', '/')).rejects.toMatchObject({
        code: 'unavailable',
        message: expect.stringContaining('its certificate is not trusted') as string,
      });
  });
});
