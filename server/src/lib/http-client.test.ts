import { createServer, request, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import { afterEach, describe, expect, it } from 'vitest';
import { answerTo, isSuccess, queryText, signalWithin } from './http-client.ts';

let server: Server | undefined;
afterEach(() => server?.close());

async function listen(made: Server): Promise<number> {
  server = made;
  await new Promise<void>((resolve) => made.listen(0, '127.0.0.1', resolve));
  return (made.address() as AddressInfo).port;
}

describe('answerTo()', () => {
  it('gives the head of the answer, whatever its status', async () => {
    const port = await listen(createServer((_, answer) => void answer.writeHead(404).end('no')));
    const { answer, socket } = await answerTo(request({ port, method: 'POST' }), Buffer.from('{}'));
    expect([answer.statusCode, isSuccess(answer), socket]).toEqual([404, false, undefined]);
    answer.resume();
  });

  it('gives the connection that is handed over, with what came along', async () => {
    const made = createServer().on('upgrade', (_, socket) => {
      socket.end('HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: tcp\r\n\r\nfirst');
    });
    const port = await listen(made);
    const headers = { Connection: 'Upgrade', Upgrade: 'tcp' };
    const { socket } = await answerTo(request({ port, headers }));
    let read = '';
    for await (const part of socket!) read += String(part);
    expect(read).toBe('first');
  });

  it('rejects with what went wrong', async () => {
    await expect(answerTo(request({ port: 1, host: '127.0.0.1' }))).rejects.toMatchObject({
      code: 'ECONNREFUSED',
    });
  });
});

describe('queryText()', () => {
  it('has several values as several pairs, and nothing of what is undefined', () => {
    expect(queryText({ a: ['x y', 'z'], b: 0, c: false, d: undefined })).toBe('?a=x+y&a=z&b=0&c=false');
    expect(queryText({ d: undefined })).toBe('');
    expect(queryText()).toBe('');
  });
});

describe('signalWithin()', () => {
  it('aborts with the caller or with the time', async () => {
    const caller = new AbortController();
    const signal = signalWithin(60_000, caller.signal);
    caller.abort();
    expect(signal.aborted).toBe(true);
    const timed = signalWithin(1);
    await new Promise((resolve) => timed.addEventListener('abort', resolve));
    expect((timed.reason as Error).name).toBe('TimeoutError');
  });
});
