/**
 * Both planes refuse what is not allowed, in the shapes that E2B's clients understand. That every route does
 * is in every-route.test.ts.
 */
import { request } from 'node:http';
import { Sandbox, AuthenticationError, RateLimitError, SandboxError } from 'e2b';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { startTestServer, type TestServer } from '../../server/src/api/testing/test-server.ts';

let server: TestServer;
let sandbox: Sandbox;
/** Of another sandbox of the same project. */
let neighbour: Sandbox;

const access = (apiKey: string) => ({ apiKey, apiUrl: server.server.url, sandboxUrl: server.server.url });
const tokenOf = (of: Sandbox) => (of as unknown as { envdAccessToken: string }).envdAccessToken;

beforeAll(async () => {
  server = await startTestServer();
  sandbox = await Sandbox.create(access(server.alice));
  neighbour = await Sandbox.create(access(server.alice));
});
afterAll(() => server[Symbol.asyncDispose]());

interface Reply {
  status: number;
  json: { code?: unknown; message?: unknown };
}

function send(method: string, path: string, headers: Record<string, string>, body = '{}'): Promise<Reply> {
  return new Promise((resolve, reject) => {
    const { hostname, port } = new URL(server.server.url);
    const sent = request({ hostname, port, method, path, headers }, (response) => {
      let text = '';
      response.on('data', (data: Buffer) => (text += data.toString()));
      response.on('end', () => resolve({ status: response.statusCode ?? 0, json: parse(text) }));
    });
    sent.on('error', reject);
    sent.end(method === 'GET' || method === 'DELETE' ? undefined : body);
  });
}

function parse(text: string): Reply['json'] {
  try {
    return JSON.parse(text) as Reply['json'];
  } catch {
    return {};
  }
}

describe('the control plane', () => {
  it('lists a project its own sandboxes alone', async () => {
    expect(await Sandbox.list(access(server.bob)).nextItems()).toEqual([]);
    expect(
      (await Sandbox.list(access(server.alice)).nextItems()).map(({ sandboxId }) => sandboxId),
    ).toContain(sandbox.sandboxId);
  });

  it('refuses a key that was revoked', async () => {
    const { json } = await server.call('POST', '/v1/keys', {
      body: { name: 'short', project: 'alice' },
      key: server.admin,
    });
    const revoked = access(json.secret as string);
    expect(await Sandbox.list(revoked).nextItems()).not.toEqual([]);
    await server.call('DELETE', `/v1/keys/${json.key.id as string}`, { key: server.admin });
    await expect(Sandbox.list(revoked).nextItems()).rejects.toBeInstanceOf(AuthenticationError);
  });

  it('says what is wrong with a request', async () => {
    const headers = { 'x-api-key': server.alice };
    expect(await send('POST', '/v2/sandboxes', headers, '{')).toMatchObject({
      status: 400,
      json: { code: 400 },
    });
    expect(await send('POST', '/v2/sandboxes', headers, '{}')).toMatchObject({
      status: 400,
      json: { code: 400 },
    });
    expect(
      await send('POST', '/v2/sandboxes', headers, '{"templateID":"base","timeout":"soon"}'),
    ).toMatchObject({ status: 400 });
    expect(await send('GET', '/v2/sandboxes?limit=1000', headers)).toMatchObject({ status: 400 });
    expect(await send('GET', '/v2/sandboxes?nextToken=x', headers)).toMatchObject({ status: 400 });
    expect(await send('GET', '/v2/sandboxes?metadata=%25zz', headers)).toMatchObject({ status: 400 });
    expect(await send('GET', '/secrets', headers)).toMatchObject({ status: 404, json: { code: 404 } });
    expect(await send('POST', '/volumes', headers, '{"name":"a b"}')).toMatchObject({ status: 400 });
    expect(await send('GET', '/volumes/nothing', headers)).toMatchObject({ status: 404 });
    await expect(Sandbox.create({ ...access(server.alice), timeoutMs: 10 ** 12 })).rejects.toBeInstanceOf(
      SandboxError,
    );
  });
});

describe('what the clients have no words for', () => {
  const ids = async (query: string) => {
    const { json } = await send('GET', `/v2/sandboxes?${query}`, { 'x-api-key': server.alice });
    return (json as unknown as { sandboxID: string }[]).map(({ sandboxID }) => sandboxID);
  };

  it('lists by template and by start', async () => {
    expect(await ids('template=base')).toContain(sandbox.sandboxId);
    expect(await ids('template=other')).toEqual([]);
    const { startedAt } = await sandbox.getInfo();
    expect(await ids(`startedAfter=${new Date(startedAt.getTime() - 1).toISOString()}`)).toContain(
      sandbox.sandboxId,
    );
    expect(await ids(`startedAfter=${new Date(startedAt.getTime() + 1).toISOString()}`)).not.toContain(
      sandbox.sandboxId,
    );
  });

  it('has the routes of both generations', async () => {
    const call = async (method: string, path: string, body?: unknown) => {
      const { status, json } = await send(
        method,
        path,
        { 'x-api-key': server.alice },
        body === undefined ? '' : JSON.stringify(body),
      );
      return { status, json: json as Record<string, unknown> };
    };
    const left = async (id: unknown) =>
      Date.parse(String((await call('GET', `/sandboxes/${String(id)}`)).json['endAt'])) - Date.now();
    for (const [path, seconds] of [
      ['/sandboxes', 15],
      ['/v2/sandboxes', 300],
    ] as const) {
      const { status, json: made } = await call('POST', path, { templateID: 'base' });
      expect(status).toBe(201);
      const id = String(made['sandboxID']);
      expect(made).toMatchObject({
        clientID: expect.any(String),
        envdVersion: '0.6.13',
        envdAccessToken: expect.any(String),
        domain: expect.any(String),
      });
      expect(Math.abs((await left(id)) - seconds * 1000)).toBeLessThan(5000);
      // Connecting never shortens a life.
      expect(await call('POST', `${path}/${id}/connect`, { timeout: 600 })).toMatchObject({
        status: 200,
        json: { sandboxID: id },
      });
      expect(await left(id)).toBeGreaterThan(590_000);
      expect((await call('POST', `${path}/${id}/connect`, {})).status).toBe(200);
      expect(await left(id)).toBeGreaterThan(590_000);
      expect((await call('POST', `/sandboxes/${id}/refreshes`, { duration: 1200 })).status).toBe(204);
      expect(await left(id)).toBeGreaterThan(1_190_000);
      expect((await call('POST', `/sandboxes/${id}/timeout`, { timeout: 60 })).status).toBe(204);
      expect(await left(id)).toBeLessThan(61_000);
      // A body is not needed where nothing has to be said.
      expect((await call('POST', `/sandboxes/${id}/pause`, { memory: false })).status).toBe(204);
      expect((await call('POST', `/sandboxes/${id}/pause`, { memory: false })).status).toBe(409);
      const listed = async (of: string) => (await call('GET', of)).json as unknown as { sandboxID: string }[];
      expect((await listed('/sandboxes')).map(({ sandboxID }) => sandboxID)).not.toContain(id);
      expect((await listed('/v2/sandboxes')).map(({ sandboxID }) => sandboxID)).toContain(id);
      expect((await call('POST', `/sandboxes/${id}/resume`, { timeout: 30 })).status).toBe(201);
      expect(await listed('/sandboxes')).toContainEqual(
        expect.objectContaining({ sandboxID: id, state: 'running' }),
      );
      expect((await call('DELETE', `/sandboxes/${id}`)).status).toBe(204);
      expect((await call('DELETE', `/sandboxes/${id}`)).status).toBe(404);
    }
  });

  it('has the quota of the project', async () => {
    const quota = (sandboxes: number | null) =>
      server.call('PATCH', '/v1/projects/bob', { key: server.admin, body: { quota: { sandboxes } } });
    await quota(0);
    await expect(Sandbox.create(access(server.bob))).rejects.toBeInstanceOf(RateLimitError);
    await quota(null);
    expect(await (await Sandbox.create(access(server.bob))).kill()).toBe(true);
  });

  it('makes one sandbox of a call that is repeated with its key', async () => {
    const create = () =>
      send(
        'POST',
        '/v2/sandboxes',
        { 'x-api-key': server.alice, 'idempotency-key': 'once' },
        '{"templateID":"base"}',
      ) as Promise<{
        status: number;
        json: { sandboxID?: string };
      }>;
    const [first, again] = [await create(), await create()];
    expect([first.status, again.status]).toEqual([201, 201]);
    expect(again.json.sandboxID).toBe(first.json.sandboxID);
  });
});

describe("a sandbox's own address", () => {
  const named = () => ({ 'e2b-sandbox-id': sandbox.sandboxId, 'e2b-sandbox-port': '49983' });

  it('takes a request that names no sandbox for the one whose token it has, and refuses it with none', async () => {
    const type = { 'content-type': 'application/json' };
    expect(
      await send('POST', '/process.Process/List', { ...type, 'x-access-token': tokenOf(sandbox) }),
    ).toMatchObject({ status: 200 });
    for (const token of [
      '',
      'x',
      `${sandbox.sandboxId}_`,
      tokenOf(neighbour).replace(neighbour.sandboxId, sandbox.sandboxId),
    ]) {
      expect(await send('POST', '/process.Process/List', { ...type, 'x-access-token': token })).toMatchObject(
        { status: 401 },
      );
    }
    expect(await send('POST', '/process.Process/List', type)).toMatchObject({ status: 401 });
  });

  it('has no private routes of a guest', async () => {
    for (const path of ['/init', '/freeze', '/unfreeze', '/upgrade', '/v1/sandboxes', '/metrics2']) {
      expect(await send('POST', path, { ...named(), 'x-access-token': tokenOf(sandbox) })).toMatchObject({
        status: 404,
      });
    }
  });

  it('answers 502 for a sandbox that is not there, whatever the token', async () => {
    const gone = { 'e2b-sandbox-id': 'i0000000000000000000', 'x-access-token': tokenOf(sandbox) };
    expect(await send('GET', '/health', gone)).toMatchObject({
      status: 502,
      json: { code: 502, message: 'The sandbox was not found' },
    });
    expect(await send('GET', '/health', { ...gone, 'e2b-sandbox-id': '../../x' })).toMatchObject({
      status: 502,
    });
    expect(await send('GET', '/health', named())).toMatchObject({ status: 204 });
  });

  it('refuses messages that it cannot read', async () => {
    const headers = { ...named(), 'x-access-token': tokenOf(sandbox) };
    const json = { ...headers, 'content-type': 'application/json' };
    expect(
      await send('POST', '/filesystem.Filesystem/Stat', { ...headers, 'content-type': 'application/grpc' }),
    ).toMatchObject({
      status: 415,
    });
    expect(await send('POST', '/filesystem.Filesystem/Stat', json, '[')).toMatchObject({
      status: 400,
      json: { code: 'invalid_argument' },
    });
    expect(await send('POST', '/filesystem.Filesystem/Stat', json, '{"path":7}')).toMatchObject({
      status: 400,
      json: { code: 'invalid_argument' },
    });
    expect(await send('POST', '/filesystem.Filesystem/Stat', json, '{"path":"~root/x"}')).toMatchObject({
      status: 400,
    });
    expect(
      await send('POST', '/filesystem.Filesystem/GetWatcherEvents', json, '{"watcherId":"w1"}'),
    ).toMatchObject({ status: 404 });
    expect(
      await send(
        'POST',
        '/process.Process/SendSignal',
        json,
        '{"process":{"pid":1},"signal":"SIGNAL_SIGSTOP"}',
      ),
    ).toMatchObject({
      status: 400,
    });
    expect(await send('POST', '/files?path=x', { ...headers, 'content-type': 'text/plain' })).toMatchObject({
      status: 400,
    });
    expect(
      await send('POST', '/files', { ...headers, 'content-type': 'application/octet-stream' }),
    ).toMatchObject({ status: 400 });
    const packed = { ...headers, 'content-type': 'application/octet-stream', 'content-encoding': 'gzip' };
    expect(await send('POST', '/files?path=x', packed, 'not gzip')).toMatchObject({ status: 400 });
    expect(
      await send('GET', '/files?path=/etc/hostname', { ...headers, 'accept-encoding': 'identity;q=0, br' }),
    ).toMatchObject({
      status: 406,
    });
  });

  it('never hands its tokens to an application inside', async () => {
    const visitor = {
      'x-access-token': tokenOf(sandbox),
      'e2b-traffic-access-token': 'mine',
      'e2b-sandbox-id': sandbox.sandboxId,
      'e2b-sandbox-port': '3000',
    };
    const started = await server.call('POST', `/v1/sandboxes/sbx_${sandbox.sandboxId}/commands`, {
      body: { argv: ['http-server', '3000'] },
    });
    expect(started.status).toBe(201);
    const { status, json } = await send('GET', '/', visitor);
    expect(status).toBe(200);
    expect(JSON.stringify(json)).not.toContain(tokenOf(sandbox));
    expect(JSON.stringify(json)).not.toContain('e2b-traffic-access-token');
  });

  it('leaves ports of sandboxes that our own API made to its own rules', async () => {
    const own = await server.create();
    const host = `3000-${own.id.slice(4)}.localhost`;
    await server.call('POST', `/v1/sandboxes/${own.id}/commands`, {
      body: { argv: ['http-server', '3000'] },
    });
    expect(await send('GET', '/', { host })).toMatchObject({ status: 404 });
    const connected = await Sandbox.connect(own.id.slice(4), access(server.alice));
    expect(await connected.files.exists('/etc/hostname')).toBe(true);
    expect(await send('GET', '/', { host })).toMatchObject({ status: 404 });
    const routed = { 'e2b-sandbox-id': own.id.slice(4), 'e2b-sandbox-port': '3000' };
    expect(await send('GET', '/', routed)).toMatchObject({ status: 403 });
    expect(await send('GET', '/', { ...routed, 'x-access-token': tokenOf(connected) })).toMatchObject({
      status: 200,
    });
  });
});
