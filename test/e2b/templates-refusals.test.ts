/** What the routes for templates refuse. */
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { memoryServer } from '../support/memory-server.ts';

type Server = Awaited<ReturnType<typeof memoryServer>>;
const HASH = 'a'.repeat(64);

describe('templates for E2B clients', () => {
  let server: Server;
  let stranger: string;
  beforeAll(async () => {
    server = await memoryServer();
    await call('POST', '/v1/projects', { name: 'stranger' });
    stranger = (
      (await call('POST', '/v1/keys', { name: 'stranger', project: 'stranger' })).body as { secret: string }
    ).secret;
  });
  afterAll(() => server[Symbol.asyncDispose]());

  async function call(method: string, path: string, body?: unknown, key: string | null = server.apiKey) {
    const response = await fetch(new URL(path, server.url), {
      method,
      headers: {
        ...(key !== null && { 'x-api-key': key }),
        ...(body !== undefined && { 'content-type': 'application/json' }),
      },
      ...(body !== undefined && { body: JSON.stringify(body) }),
    });
    const text = await response.text();
    return { status: response.status, body: text === '' ? undefined : (JSON.parse(text) as unknown) };
  }
  const refused = (status: number) => ({
    status,
    body: { code: status, message: expect.any(String) as string },
  });
  const request = async (key?: string) =>
    (await call('POST', '/v3/templates', { name: 'mine' }, key)).body as {
      templateID: string;
      buildID: string;
    };

  it('does not know builds and templates of others', async () => {
    const { buildID } = await request();
    expect(await call('GET', `/templates/mine/builds/${buildID}/status`, undefined, stranger)).toEqual(
      refused(404),
    );
    expect(
      await call('POST', `/v2/templates/mine/builds/${buildID}`, { fromTemplate: 'base' }, stranger),
    ).toEqual(refused(404));
    expect(await call('GET', `/templates/other/builds/${buildID}/status`)).toEqual(refused(404));
    expect(await call('GET', '/templates/aliases/mine', undefined, stranger)).toEqual(refused(404));
  });

  it('takes files only by an address that it made, as long as that is valid', async () => {
    const link = (await call('GET', `/templates/mine/files/${HASH}`)).body as {
      present: boolean;
      url: string;
    };
    expect(link.present).toBe(false);
    expect(new URL(link.url).origin).toBe(server.url);
    const put = async (change: (url: URL) => void) => {
      const url = new URL(link.url);
      change(url);
      return (await fetch(url, { method: 'PUT', body: 'archive' })).status;
    };
    expect(await put((url) => (url.search = ''))).toBe(400);
    expect(await put((url) => url.searchParams.set('signature', 'AAAA'))).toBe(401);
    expect(await put((url) => url.searchParams.set('expires', '99999999999999'))).toBe(401);
    expect(await put((url) => url.searchParams.set('project', 'prj_other'))).toBe(401);
    expect(await put((url) => (url.pathname = url.pathname.replace(HASH, 'b'.repeat(64))))).toBe(401);
    expect(await put((url) => (url.pathname = url.pathname.replace(HASH, '..%2f..%2fetc')))).toBe(400);
    expect(await put(() => {})).toBe(200);
    expect((await call('GET', `/templates/mine/files/${HASH}`)).body).toMatchObject({ present: true });
    expect((await call('GET', `/templates/mine/files/${HASH}`, undefined, stranger)).body).toMatchObject({
      present: false,
    });
    expect(await call('GET', '/templates/mine/files/nothing')).toEqual(refused(400));
  });

  it('refuses what it cannot build, before it begins', async () => {
    for (const body of [
      {},
      { name: '' },
      { name: 'a/b' },
      { name: 'a:' },
      { name: 'a:b:c' },
      { name: 'a', tags: [':x'] },
      { name: 'a', memoryMB: 1 },
    ]) {
      expect(await call('POST', '/v3/templates', body), JSON.stringify(body)).toEqual(refused(400));
    }
    expect(await call('POST', '/v3/templates', { name: 'base' })).toEqual(refused(409));
    const { buildID } = await request();
    const start = (body: unknown) => call('POST', `/v2/templates/mine/builds/${buildID}`, body);
    expect(await start({})).toEqual(refused(400));
    expect(
      await start({ fromImage: 'x', fromImageRegistry: { type: 'registry', username: 'u', password: 'p' } }),
    ).toEqual(refused(501));
    for (const step of [
      { type: 'RUN', args: [] },
      { type: 'COPY', args: ['a', 'b'] },
      { type: 'COPY', args: ['a', 'b', '', 'u+s'], filesHash: HASH },
      { type: 'ENV', args: ['odd'] },
      { type: 'SHELL', args: ['x'] },
      { type: 'RUN', args: ['nul\0'] },
    ]) {
      expect(await start({ fromTemplate: 'base', steps: [step] }), JSON.stringify(step)).toEqual(
        refused(400),
      );
    }
    expect((await start({ fromTemplate: 'base' })).status).toBe(202);
    expect(await start({ fromTemplate: 'base' })).toEqual(refused(409));
  });
});
