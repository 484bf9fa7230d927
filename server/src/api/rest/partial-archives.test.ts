/** An archive that could not be packed to its end must not look whole to the client. */
import { connect } from 'node:net';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { startTestServer, type TestServer } from '../testing/test-server.ts';

let test: TestServer;
let files: string;

beforeAll(async () => {
  test = await startTestServer();
  files = `/v1/sandboxes/${(await test.create()).id}/files`;
  const put = (path: string, body: string | Uint8Array, more = '') =>
    test.call('PUT', `${files}?path=${path}&user=root${more}`, { body });
  await put('/tmp/closed/a', 'secret', '&mode=600');
  await put('/tmp/mixed/a', 'open', '&mode=644');
  await put('/tmp/mixed/b', 'secret', '&mode=600');
  await put('/tmp/large/a', new Uint8Array(3_000_000), '&mode=644');
  await put('/tmp/large/b', 'secret', '&mode=600');
});
afterAll(() => test[Symbol.asyncDispose]());

/** Also cut if nothing had been sent by then. */
async function packed(path: string, user = 'user'): Promise<number | 'cut'> {
  try {
    const response = await test.fetch(`${files}/tar?path=${path}&user=${user}`);
    expect(response.status).toBe(200);
    return (await response.arrayBuffer()).byteLength;
  } catch (error) {
    expect(error).toBeInstanceOf(TypeError);
    return 'cut';
  }
}

/** What a client of HTTP/1.0 gets, whose only sign of an end is that of the connection. */
async function raw(path: string): Promise<'ended' | 'reset'> {
  const { hostname, port } = new URL(test.server.url);
  const socket = connect(Number(port), hostname);
  const headers = `Host: x\r\nAuthorization: Bearer ${test.alice}`;
  socket.write(`GET ${files}/tar?path=${path} HTTP/1.0\r\n${headers}\r\n\r\n`);
  try {
    for await (const _chunk of socket);
    return 'ended';
  } catch (error) {
    expect((error as NodeJS.ErrnoException).code).toBe('ECONNRESET');
    return 'reset';
  }
}

describe('an archive of files that the user may not read', () => {
  it.each(['/', '/tmp/closed', '/tmp/mixed', '/tmp/large'])('is cut off (%s)', async (path) => {
    expect(await packed(path)).toBe('cut');
    expect(await raw(path)).toBe('reset');
    expect(await packed(path, 'root')).toBeGreaterThan(1024);
  });

  it('is an error where nothing was packed yet', async () => {
    const { status, json } = await test.call('GET', `${files}/tar?path=/root&user=user`);
    expect([status, json.error.code]).toEqual([403, 'permission_denied']);
  });

  it('leaves the server to others', async () => {
    expect((await test.call('GET', '/v1/version')).status).toBe(200);
  });
});
