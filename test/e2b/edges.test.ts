/** What E2B's API does at its edges: names, tags, filters, refusals, and what newer clients read. */
import { request } from 'node:http';
import { connect } from 'node:net';
import { Sandbox } from 'e2b';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { startTestServer, type TestServer } from '../../server/src/api/testing/test-server.ts';
import { eventually, visit } from './e2b-platform.ts';

let server: TestServer;

const access = () => ({ apiKey: server.alice, apiUrl: server.server.url, sandboxUrl: server.server.url });

interface Reply {
  status: number;
  headers: NodeJS.Dict<string | string[]>;
  // Tests look into answers of every shape.
  // oxlint-disable-next-line typescript/no-explicit-any
  json: any;
}

function call(method: string, path: string, body?: unknown, headers: Record<string, string> = {}) {
  return new Promise<Reply>((resolve, reject) => {
    const { hostname, port } = new URL(server.server.url);
    const sent = request(
      { hostname, port, method, path, headers: { 'x-api-key': server.alice, ...headers } },
      (response) => {
        let text = '';
        response.on('data', (data: Buffer) => (text += data.toString()));
        response.on('end', () =>
          resolve({
            status: response.statusCode ?? 0,
            headers: response.headers,
            json: /^[[{]/.test(text) ? (JSON.parse(text) as unknown) : text,
          }),
        );
      },
    );
    sent.on('error', reject);
    sent.end(body === undefined ? undefined : JSON.stringify(body));
  });
}

beforeAll(async () => {
  server = await startTestServer();
});
afterAll(() => server[Symbol.asyncDispose]());

async function build(name: string, tag?: string): Promise<string> {
  const { json } = await call('POST', '/v3/templates', { name, ...(tag && { tags: [tag] }) });
  await call('POST', `/v2/templates/${name}/builds/${json.buildID}`, { fromTemplate: 'base' });
  await eventually(async () => {
    const { json: status } = await call('GET', `/templates/${name}/builds/${json.buildID}/status`);
    return status.status === 'ready';
  });
  return json.buildID as string;
}

describe('sandboxes', () => {
  it('are listed from the moment that is named', async () => {
    const sandbox = await Sandbox.create(access());
    const { startedAt } = await sandbox.getInfo();
    const ids = async (after: Date) =>
      ((await call('GET', `/v2/sandboxes?startedAfter=${after.toISOString()}`)).json as Json[]).map(
        ({ sandboxID }) => sandboxID,
      );
    expect(await ids(startedAt)).toContain(sandbox.sandboxId);
    expect(await ids(new Date(startedAt.getTime() + 1))).not.toContain(sandbox.sandboxId);
    await sandbox.kill();
  });

  it('are refused with options that exclude each other', async () => {
    const create = async (options: object) =>
      (await call('POST', '/v2/sandboxes', { templateID: 'base', ...options })).status;
    expect(await create({ autoPauseMemory: false })).toBe(400);
    expect(await create({ autoPause: true, autoPauseMemory: false, autoResume: { enabled: true } })).toBe(
      400,
    );
    expect(await create({ autoPause: true, autoPauseMemory: false })).toBe(201);
    expect(await create({ network: { allowPublicTraffic: false }, secure: false })).toBe(400);
  });

  it('are made for a gateway of tools that the template brings', async () => {
    const { status } = await call('POST', '/v2/sandboxes', { templateID: 'base', mcp: { exa: {} } });
    expect(status).toBe(201);
    expect(await call('POST', '/v2/sandboxes', { templateID: 'mcp-gateway', mcp: {} })).toMatchObject({
      status: 404,
    });
    expect(await call('POST', '/v2/sandboxes', { templateID: 'base', mcp: 'all' })).toMatchObject({
      status: 400,
    });
  });

  it('have a timeout that is checked before they are looked for, and none while they are paused', async () => {
    const late = { timeout: 10 ** 9 };
    expect((await call('POST', '/sandboxes/i0000000000000000000/timeout', late)).status).toBe(400);
    expect((await call('POST', '/sandboxes/i0000000000000000000/timeout', { timeout: 9 })).status).toBe(404);
    const sandbox = await Sandbox.create(access());
    await sandbox.pause({ keepMemory: false });
    expect((await call('POST', `/sandboxes/${sandbox.sandboxId}/timeout`, { timeout: 9 })).status).toBe(404);
    expect((await call('POST', `/sandboxes/${sandbox.sandboxId}/fork`, {})).status).toBe(409);
    await sandbox.kill();
  });

  it('are removed also while a snapshot is being taken', async () => {
    for (let round = 0; round < 5; round += 1) {
      const sandbox = await Sandbox.create(access());
      const snapshot = call('POST', `/sandboxes/${sandbox.sandboxId}/snapshots`, {});
      const [killed] = await Promise.all([sandbox.kill(), snapshot]);
      expect(killed).toBe(true);
      expect((await call('GET', `/sandboxes/${sandbox.sandboxId}`)).status).toBe(404);
    }
  });

  it('are measured several at once', async () => {
    const [one, other] = [await Sandbox.create(access()), await Sandbox.create(access())];
    const { status, json } = await call(
      'GET',
      `/sandboxes/metrics?sandbox_ids=${one.sandboxId},${other.sandboxId},i0000000000000000000`,
    );
    expect(status).toBe(200);
    expect(Object.keys(json.sandboxes as object).toSorted()).toEqual(
      [one.sandboxId, other.sandboxId].toSorted(),
    );
    expect(json.sandboxes[one.sandboxId]).toMatchObject({ cpuCount: expect.any(Number) as number });
  });

  it('tell what happened to them as logs', async () => {
    const sandbox = await Sandbox.create(access());
    const { json } = await call('GET', `/v2/sandboxes/${sandbox.sandboxId}/logs?direction=forward`);
    expect(json.logs[0]).toMatchObject({
      timestamp: expect.stringMatching(/^\d{4}-.*Z$/) as string,
      level: 'info',
      message: expect.stringContaining('sandbox.created') as string,
      fields: expect.any(Object) as object,
    });
    const found = await call('GET', `/v2/sandboxes/${sandbox.sandboxId}/logs?search=nothing-such`);
    expect(found.json).toEqual({ logs: [] });
    const old = await call('GET', `/sandboxes/${sandbox.sandboxId}/logs`);
    expect(old.json.logs[0]).toMatchObject({ line: expect.stringContaining('sandbox.created') as string });
    expect((await call('GET', '/v2/sandboxes/i0000000000000000000/logs')).status).toBe(404);
  });
});

type Json = Record<string, unknown>;

/** Starts a command, and resolves to how its connection ends. */
function endOf(sandbox: Sandbox, begun: () => void): Promise<string> {
  const { port } = new URL(server.server.url);
  const body = JSON.stringify({ process: { cmd: 'sleep', args: ['100'] } });
  const head = Buffer.alloc(5);
  head.writeUInt32BE(body.length, 1);
  const socket = connect(Number(port), '127.0.0.1');
  socket.write(
    [
      'POST /process.Process/Start HTTP/1.1',
      'Host: localhost',
      'Content-Type: application/connect+json',
      `X-Access-Token: ${(sandbox as unknown as { envdAccessToken: string }).envdAccessToken}`,
      `E2b-Sandbox-Id: ${sandbox.sandboxId}`,
      `Content-Length: ${head.length + body.length}`,
      '\r\n',
    ].join('\r\n'),
  );
  socket.write(Buffer.concat([head, Buffer.from(body)]));
  return new Promise((resolve) => {
    socket.on('data', (data) => data.includes('"start"') && begun());
    socket.on('error', (error: NodeJS.ErrnoException) => resolve(error.code ?? error.message));
    socket.on('close', () => resolve('closed'));
  });
}

describe('a command whose sandbox is killed', () => {
  it('ends with a reset, by which Python clients know that the sandbox is gone', async () => {
    const sandbox = await Sandbox.create(access());
    const { promise: begun, resolve } = Promise.withResolvers<void>();
    const end = endOf(sandbox, resolve);
    await begun;
    await sandbox.kill();
    expect(await end).toBe('ECONNRESET');
  });
});

describe('snapshots with names', () => {
  it('have the id of their name and tag', async () => {
    const sandbox = await Sandbox.create(access());
    const take = async (name?: string) =>
      (await call('POST', `/sandboxes/${sandbox.sandboxId}/snapshots`, { name, memory: false })).json as Json;
    const listed = async (name: string) =>
      ((await call('GET', `/snapshots?name=${encodeURIComponent(name)}`)).json as Json[]).map(
        ({ snapshotID }) => snapshotID,
      );
    expect(await take('kept')).toEqual({ snapshotID: 'kept:default', names: ['kept'] });
    expect(await take('kept')).toEqual({ snapshotID: 'kept:default', names: ['kept'] });
    for (const name of ['kept', 'kept:default']) expect(await listed(name)).toEqual(['kept:default']);
    expect(await take('kept:v2')).toEqual({ snapshotID: 'kept:v2', names: ['kept'] });
    expect(await listed('kept:default')).toEqual(['kept:default']);
    expect(await listed('kept:v2')).toEqual(['kept:v2']);
    // A name alone means its newest.
    expect(await listed('kept')).toEqual(['kept:v2']);
    expect(await listed('kept:none')).toEqual([]);
    expect(await listed('none')).toEqual([]);
    const { json: tags } = await call('GET', '/templates/kept:default/tags');
    expect(new Set((tags as Json[]).map(({ tag }) => tag))).toEqual(new Set(['default', 'v2']));

    const unnamed = await take();
    expect(unnamed['names']).toEqual([]);
    expect(await listed(String(unnamed['snapshotID']))).toEqual([unnamed['snapshotID']]);

    const child = await Sandbox.create('kept:default', access());
    await child.kill();
    expect((await call('DELETE', '/templates/kept%3Av2')).status).toBe(204);
    expect(await listed('kept')).toEqual(['kept:default']);
    expect((await call('DELETE', '/templates/kept')).status).toBe(204);
    expect(await listed('kept')).toEqual([]);
    expect((await call('DELETE', '/templates/kept')).status).toBe(404);
    expect((await call('DELETE', `/templates/${String(unnamed['snapshotID'])}`)).status).toBe(204);
  });
});

describe('templates', () => {
  it('are listed, with their tags', async () => {
    const first = await build('tagged');
    const { json } = await call('GET', '/templates');
    expect(json).toContainEqual(
      expect.objectContaining({
        templateID: 'tagged',
        buildID: first,
        aliases: ['tagged'],
        names: ['tagged'],
        public: false,
        buildStatus: 'ready',
        cpuCount: expect.any(Number) as number,
        createdBy: null,
        spawnCount: expect.any(Number) as number,
      }),
    );
    const page = await call('GET', '/v2/templates?limit=1');
    expect(page.json).toHaveLength(1);
    const next = await call(
      'GET',
      `/v2/templates?limit=100&nextToken=${String(page.headers['x-next-token'])}`,
    );
    expect((next.json as Json[]).length + 1).toBe((json as Json[]).length);
    expect(next.headers['x-next-token']).toBeUndefined();
    expect((await call('GET', '/templates/tagged')).json).toMatchObject({
      templateID: 'tagged',
      builds: [expect.objectContaining({ buildID: first, status: 'ready' })],
    });
    expect((await call('GET', '/templates/none')).status).toBe(404);
    expect((await call('GET', '/default-templates')).json).toEqual([]);
  });

  it('get a tag back by the build that had it', async () => {
    const first = await build('moved', 'v1');
    await build('moved');
    const assigned = await call('POST', '/templates/tags', { target: `moved:${first}`, tags: ['default'] });
    expect(assigned).toMatchObject({ status: 201, json: { buildID: first, tags: ['default'] } });
    const { json: tags } = await call('GET', '/templates/moved/tags');
    for (const tag of ['v1', 'default'])
      expect(tags).toContainEqual(expect.objectContaining({ tag, buildID: first }));
    expect((await call('GET', '/templates/moved/tags/count')).json).toEqual({ total: 2 });
    expect((await call('GET', '/templates/moved/tags/exists?tag=Default')).json).toEqual({
      exists: true,
      normalizedTag: 'default',
    });
    expect((await call('GET', '/templates/moved/tags/exists?tag=v9')).json).toMatchObject({ exists: false });
    expect((await call('GET', '/templates/moved/tags/groups?search=def')).json).toMatchObject({
      tags: [{ tag: 'default', hasMore: false, assignments: [{ buildId: first }] }],
      nextCursor: null,
    });
    expect((await call('DELETE', '/templates/tags', { name: 'moved', tags: ['default'] })).status).toBe(400);
    expect((await call('GET', '/templates/moved/builds/first/status')).status).toBe(400);
  });
});

describe('answers', () => {
  it('say whether to try again', async () => {
    expect((await call('GET', '/sandboxes/none')).headers['should-retry']).toBe('false');
    const quota = (sandboxes: number | null) =>
      server.call('PATCH', '/v1/projects/alice', { key: server.admin, body: { quota: { sandboxes } } });
    await quota(0);
    const refused = await call('POST', '/v2/sandboxes', { templateID: 'base' });
    await quota(null);
    // A quota is not freed by trying again.
    expect(refused).toMatchObject({ status: 429, headers: { 'should-retry': 'false' } });
  });

  it('say that the API is there', async () => {
    expect((await fetch(`${server.server.url}/health`)).status).toBe(200);
  });

  it('tell visitors of a host whose sandbox is gone, as for one that never was', async () => {
    const sandbox = await Sandbox.create(access());
    const host = `3000-${sandbox.sandboxId}.localhost`;
    await sandbox.kill();
    for (const [at, id] of [
      [host, sandbox.sandboxId],
      ['3000-i0000000000000000000.localhost', 'i0000000000000000000'],
    ] as const) {
      const { status, body } = await visit(server.server.url, at);
      expect([status, JSON.parse(body)]).toEqual([
        502,
        { sandboxId: id, message: 'The sandbox was not found', port: 3000, code: 502 },
      ]);
    }
    const page = await visit(server.server.url, host, '/', { accept: 'text/html' });
    expect(page.status).toBe(502);
    expect(page.body).toContain('<!doctype html>');
  });

  it('reach a port by the old form of a host, and name the token that is missing', async () => {
    const sandbox = await Sandbox.create({ ...access(), network: { allowPublicTraffic: false } });
    const { status, body } = await visit(server.server.url, `3000-${sandbox.sandboxId}-00000000.localhost`);
    expect(status).toBe(403);
    expect(JSON.parse(body)).toMatchObject({
      sandboxId: sandbox.sandboxId,
      message: expect.stringContaining("'e2b-traffic-access-token' is missing") as string,
      code: 403,
    });
    const wrong = await visit(server.server.url, `3000-${sandbox.sandboxId}.localhost`, '/', {
      'e2b-traffic-access-token': 'x',
    });
    expect(wrong.body).toContain('is invalid');
    await sandbox.kill();
  });
});
