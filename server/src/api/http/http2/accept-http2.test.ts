import { once } from 'node:events';
import { createServer, type RequestListener } from 'node:http';
import { connect, constants, type ClientHttp2Session } from 'node:http2';
import { connect as connectTcp, type AddressInfo } from 'node:net';
import { Duplex } from 'node:stream';
import { setTimeout as sleep } from 'node:timers/promises';
import { afterEach, describe, expect, it } from 'vitest';
import { limitConnections } from '../limit-connections.ts';
import { cutOff } from '../stream-answer.ts';
import { acceptHttp2, type AcceptHttp2Options } from './accept-http2.ts';

const undo: (() => void)[] = [];
afterEach(() => {
  for (const step of undo.splice(0)) step();
});

async function start(
  listener: RequestListener,
  options: Partial<AcceptHttp2Options> = {},
): Promise<ClientHttp2Session> {
  const server = createServer(listener);
  const accepted = acceptHttp2(server, { headersMs: 5000, idleMs: 5000, admit: () => true, ...options });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  const session = connect(`http://127.0.0.1:${(server.address() as AddressInfo).port}`);
  session.on('error', () => {});
  undo.push(() => {
    session.destroy();
    accepted.destroy();
    server.close();
  });
  return session;
}

async function get(
  session: ClientHttp2Session,
  path = '/',
): Promise<{ text: string; code: number | undefined }> {
  const stream = session.request({ ':path': path });
  let text = '';
  stream.on('data', (data: Buffer) => (text += data.toString())).on('error', () => {});
  await new Promise<void>((resolve) => stream.once('close', () => resolve()));
  return { text, code: stream.rstCode };
}

describe('acceptHttp2()', () => {
  it('shows HTTP/1 code where a client is, and whom it asks for', async () => {
    const session = await start((request, response) =>
      response.end(`${request.socket.remoteAddress} ${request.headers.host} ${request.httpVersion}`),
    );
    const { text } = await get(session);
    expect(text).toMatch(/^127\.0\.0\.1 127\.0\.0\.1:\d+ 1\.1$/);
  });

  it('cuts one answer off, and not the others on its connection', async () => {
    const session = await start((request, response) => {
      response.write('a part');
      if (request.url === '/cut') setTimeout(() => cutOff(response), 20);
      else setTimeout(() => response.end(' and the rest'), 100);
    });
    const [cut, whole] = await Promise.all([get(session, '/cut'), get(session, '/whole')]);
    expect(cut.code).toBe(constants.NGHTTP2_INTERNAL_ERROR);
    expect(whole).toEqual({ text: 'a part and the rest', code: constants.NGHTTP2_NO_ERROR });
  });

  it('tells an answer that ends with its connection from one that is complete', async () => {
    const session = await start((_request, response) => {
      response.writeHead(200, { 'Content-Length': 100 });
      response.write('a part');
      setTimeout(() => response.destroy(), 20);
    });
    expect((await get(session)).code).toBe(constants.NGHTTP2_INTERNAL_ERROR);
  });

  it('waits for a reader that is slow, and loses nothing', async () => {
    let written = 0;
    const session = await start((_request, response) => {
      const more = () => {
        while (written < 20_000_000) {
          written += 50_000;
          if (!response.write(Buffer.alloc(50_000))) return void response.once('drain', more);
        }
        response.end();
      };
      more();
    });
    const stream = session.request({ ':path': '/' });
    let read = 0;
    await once(stream, 'response');
    await sleep(100);
    expect(written).toBeLessThan(2_000_000);
    for await (const chunk of stream) read += (chunk as Buffer).length;
    expect(read).toBe(20_000_000);
  });

  it('refuses streams of an address that has too many connections', async () => {
    const session = await start((_request, response) => response.end('x'), { admit: () => false });
    expect((await get(session)).code).toBe(constants.NGHTTP2_REFUSED_STREAM);
  });

  it('counts each stream until it is closed', async () => {
    let open = 0;
    const session = await start((_request, response) => response.end('x'), {
      admit(stream) {
        open++;
        stream.once('close', () => open--);
        return true;
      },
    });
    await Promise.all(Array.from({ length: 50 }, () => get(session)));
    await sleep(20);
    expect(open).toBe(0);
  });

  it('sends trailers on', async () => {
    const session = await start((_request, response) => {
      response.writeHead(200, { Trailer: 'x-sum' });
      response.write('body');
      response.addTrailers({ 'x-sum': '42' });
      response.end();
    });
    const stream = session.request({ ':path': '/' });
    stream.resume();
    const [trailers] = (await once(stream, 'trailers')) as [Record<string, string>];
    expect(trailers['x-sum']).toBe('42');
  });

  it('takes no notice of bad requests that are reset at once', async () => {
    const session = await start((_request, response) => response.end('x'));
    expect(await get(session)).toMatchObject({ text: 'x' });
    const frame = (type: number, flags: number, stream: number, payload: Buffer) => {
      const head = Buffer.from([0, 0, payload.length, type, flags, 0, 0, 0, stream]);
      return Buffer.concat([head, payload]);
    };
    const text = (value: string) => Buffer.concat([Buffer.of(value.length), Buffer.from(value)]);
    const field = (name: string, value: string) => Buffer.concat([Buffer.of(0), text(name), text(value)]);
    const block = Buffer.concat([field(':method', 'CONNECT'), field(':authority', 'x')]);
    const pairs = Array.from({ length: 50 }, (_, index) => [
      frame(1, 4, 2 * index + 1, block),
      frame(3, 0, 2 * index + 1, Buffer.alloc(4)),
    ]);
    const socket = connectTcp(session.socket.remotePort!, '127.0.0.1').on('error', () => {});
    undo.push(() => socket.destroy());
    socket.write('PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n');
    socket.write(Buffer.concat([frame(4, 0, 0, Buffer.alloc(0)), ...pairs.flat()]));
    await once(socket, 'data');
    await sleep(50);
    expect(await get(session)).toMatchObject({ text: 'x' });
  });

  it('leaves out trailers that HTTP/2 forbids', async () => {
    const session = await start((_request, response) => {
      response.writeHead(200, { 'Transfer-Encoding': 'chunked' });
      response.write('body');
      response.addTrailers({ 'keep-alive': 'timeout=9', te: 'gzip', 'x-sum': '42' });
      response.end();
    });
    expect(await get(session)).toEqual({ text: 'body', code: constants.NGHTTP2_NO_ERROR });
  });
});

describe('limitConnections()', () => {
  it('counts streams with connections', () => {
    const admit = limitConnections(createServer(), 2);
    const from = (remoteAddress: string) => Object.assign(new Duplex({ read() {} }), { remoteAddress });
    const first = from('203.0.113.5');
    expect([admit(first), admit(from('203.0.113.5')), admit(from('203.0.113.5'))]).toEqual([
      true,
      true,
      false,
    ]);
    expect(admit(from('203.0.113.6'))).toBe(true);
    expect([1, 2, 3].map(() => admit(from('127.0.0.1')))).toEqual([true, true, true]);
  });
});
