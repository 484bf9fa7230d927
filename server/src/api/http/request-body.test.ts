import { once } from 'node:events';
import {
  createServer,
  request as send,
  type IncomingMessage,
  type Server,
  type ServerResponse,
} from 'node:http';
import type { AddressInfo } from 'node:net';
import { afterEach, describe, expect, it } from 'vitest';
import { bodyOf } from './request-body.ts';

let server: Server | undefined;
afterEach(() => {
  server?.closeAllConnections();
  server?.close();
});

async function listening(
  handle: (request: IncomingMessage, response: ServerResponse) => Promise<void>,
): Promise<ReturnType<typeof send>> {
  server = createServer(
    (request, response) => void handle(request, response).catch(() => response.destroy()),
  );
  await new Promise<void>((resolve) => server!.listen(0, '127.0.0.1', resolve));
  return send({ port: (server.address() as AddressInfo).port, host: '127.0.0.1', method: 'POST' });
}

describe('bodyOf()', () => {
  it('gives every byte in order, at the pace of the reader', async () => {
    const sent = Buffer.from(Array.from({ length: 3_000_000 }, (_, index) => index % 251));
    const received = Promise.withResolvers<Buffer>();
    const call = await listening(async (request, response) => {
      const chunks: Buffer[] = [];
      for await (const chunk of bodyOf(request)) {
        chunks.push(chunk);
        if (chunks.length % 8 === 0) await new Promise((resolve) => setTimeout(resolve, 1));
      }
      received.resolve(Buffer.concat(chunks));
      response.end();
    });
    call.end(sent);
    expect((await received.promise).equals(sent)).toBe(true);
  });

  it('is empty where there is no body', async () => {
    const count = Promise.withResolvers<number>();
    const call = await listening(async (request, response) => {
      count.resolve((await Array.fromAsync(bodyOf(request))).length);
      response.end();
    });
    call.end();
    expect(await count.promise).toBe(0);
  });

  it('rejects when the client goes away in the middle', async () => {
    const outcome = Promise.withResolvers<unknown>();
    const call = await listening(async (request) => {
      outcome.resolve(await Array.fromAsync(bodyOf(request)).catch((error: unknown) => error));
    });
    call.on('error', () => {}).setHeader('content-length', 1000);
    call.write('half');
    await once(server!, 'request');
    await new Promise((resolve) => setTimeout(resolve, 20));
    call.destroy();
    expect(await outcome.promise).toBeInstanceOf(Error);
  });

  it('lets a reader that stops early answer', async () => {
    const call = await listening(async (request, response) => {
      for await (const _ of bodyOf(request)) break;
      response.writeHead(413).end('enough');
    });
    call.on('error', () => {}).setHeader('content-length', 50_000_000);
    call.write(Buffer.alloc(1_000_000));
    const [response] = (await once(call, 'response')) as [IncomingMessage];
    expect(response.statusCode).toBe(413);
    call.destroy();
  });
});
