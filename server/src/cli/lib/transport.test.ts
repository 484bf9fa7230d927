import { createServer, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import { connect } from '@cay/sdk/client';
import { WebSocketServer, type WebSocket } from 'ws';
import { afterEach, describe, expect, it } from 'vitest';
import { inCliWords } from './cli-words.ts';
import { patientDispatcher, transportOptions } from './transport.ts';

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

const open = (url: string) => connect({ url, apiKey: 'k', ...transportOptions });

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

  it('waits for an answer for as long as the server needs', () => {
    expect(patientDispatcher()).toBeDefined();
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
