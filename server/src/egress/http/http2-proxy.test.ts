import { once } from 'node:events';
import { connect, createServer, type ServerHttp2Session } from 'node:http2';
import { type Duplex, duplexPair } from 'node:stream';
import { describe, expect, it } from 'vitest';
import { Denial } from '../carrier/denial.ts';
import { listen, opened, world } from '../testing/servers.ts';
import type { HttpConnection } from './exchange.ts';
import { openHttp2Proxy } from './http2-proxy.ts';

/** A connection of a sandbox that refuses all, and keeps what it was asked for. */
function refusing(asked: string[]): HttpConnection {
  return {
    secure: true,
    dial: () => Promise.reject(new Error('it is not dialled')),
    begin: ({ target }) => {
      asked.push(target);
      throw new Denial('no_rule', 'It is refused');
    },
    pageOf: () => ({ status: 403, statusText: 'no', type: 'text/plain', body: Buffer.from('no') }),
    touch: () => {},
    hold: () => () => {},
  };
}

async function request(socket: Duplex, path: string, authority = 'h'): Promise<number> {
  const session = connect(`http://${authority}`, { createConnection: () => socket });
  session.on('error', () => {});
  opened.push(() => session.destroy());
  const stream = session.request({ ':path': path });
  const [headers] = (await once(stream, 'response')) as [{ ':status': number }];
  stream.resume();
  return headers[':status'];
}

describe('HTTP/2 of sandboxes', () => {
  it('that gets no session leaves nothing to the next connection, which may be of another', async () => {
    const proxy = openHttp2Proxy();
    opened.push(() => proxy.close());
    const [one, other] = [[] as string[], [] as string[]];
    // TLS that settled on no protocol, after a second hello that was unlike the first.
    const [, unsettled] = duplexPair();
    proxy.take(Object.assign(unsettled, { alpnProtocol: false }), refusing(one));
    expect(unsettled.destroyed).toBe(true);
    const [program, stream] = duplexPair();
    proxy.take(stream, refusing(other));
    expect(await request(program, '/other')).toBe(403);
    expect([one, other]).toEqual([[], ['/other']]);
  });

  it.each([101, 600, 999])('whose target answers with status %d gets a 502', async (status) => {
    const caught: unknown[] = [];
    const onCaught = (error: unknown) => caught.push(error);
    const server = createServer();
    server.on('stream', (stream) => {
      stream.on('error', () => {});
      const patched = stream as unknown as Record<
        symbol,
        { respond(list: [string, number], options: number): number }
      >;
      const handle = Object.getOwnPropertySymbols(patched).find(
        (name) => String(name) === 'Symbol(kHandle)',
      )!;
      patched[handle]!.respond([`:status\0${status}\0\0`, 1], 1);
    });
    const port = await listen(server as never);
    const { names, connect: dial } = world('public');
    names.set('web.example.org', ['127.0.0.1']);
    process.on('uncaughtException', onCaught);
    opened.push(() => process.off('uncaughtException', onCaught));
    expect(
      await request(dial({ name: 'web.example.org', port }).socket, '/', `web.example.org:${port}`),
    ).toBe(502);
    expect(caught).toEqual([]);
  });

  it('lets one stream send ahead more than HTTP/2 begins with, both ways', async () => {
    const server = createServer((_request, response) => response.end('ok'));
    const sessions: ServerHttp2Session[] = [];
    server.on('session', (session) => sessions.push(session));
    const port = await listen(server as never);
    const { names, connect: dial } = world('public');
    names.set('web.example.org', ['127.0.0.1']);
    const { socket } = dial({ name: 'web.example.org', port });
    const session = connect(`http://web.example.org:${port}`, { createConnection: () => socket });
    session.on('error', () => {});
    opened.push(() => session.destroy());
    const stream = session.request({ ':path': '/' });
    await once(stream, 'response');
    stream.resume();
    const room = (of: { state: { remoteWindowSize?: number } } | undefined) =>
      of?.state.remoteWindowSize ?? 0;
    await expect.poll(() => room(session)).toBeGreaterThan(1_000_000);
    await expect.poll(() => room(sessions[0])).toBeGreaterThan(1_000_000);
    expect(session.remoteSettings.initialWindowSize).toBeGreaterThan(200_000);
    expect(sessions[0]!.remoteSettings.initialWindowSize).toBeGreaterThan(500_000);
  });
});
