/**
 * Every route of both planes, as the server itself has them, refuses who has no business there. A route that
 * is added is walked by itself: unless it is named here, it must not know another project's things.
 */
import { request } from 'node:http';
import { Sandbox } from 'e2b';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { e2bRoutes, type RouteParts } from '../../server/src/api/e2b/rest/e2b-routes.ts';
import { envd, type EnvdOptions } from '../../server/src/api/e2b/envd/envd.ts';
import { startTestServer, type TestServer } from '../../server/src/api/testing/test-server.ts';
import { eventually } from './e2b-platform.ts';

// What there is does not depend on what it is made of.
const CONTROL = e2bRoutes({ routing: {}, building: { control: {} } } as unknown as RouteParts);
const DATA = envd({} as EnvdOptions).routes.map((route) => route.split(' ') as [string, string]);
const HASH = 'a'.repeat(64);
const STREAMS = /\/(Start|Connect|WatchDir|StreamInput)$/;

/** What another project's key gets where that is not "not found": things of its own. */
const OWN: Record<string, { status: number; body: unknown }> = {
  e2bListSandboxes: { status: 200, body: [] },
  e2bListSnapshots: { status: 200, body: [] },
  e2bListTemplates: { status: 200, body: [] },
  e2bListDefaultTemplates: { status: 200, body: [] },
  e2bListVolumes: {
    status: 200,
    body: expect.not.arrayContaining([expect.objectContaining({ name: 'of-alice' })]),
  },
  e2bCreateVolume: { status: 201, body: expect.objectContaining({ name: expect.any(String) }) },
  e2bListMetrics: { status: 200, body: { sandboxes: {} } },
  e2bRequestBuild: { status: 202, body: expect.objectContaining({ templateID: 'mine' }) },
  e2bGetUploadLink: { status: 201, body: expect.objectContaining({ present: false }) },
};

/** What a route needs to be asked. */
const QUERY: Record<string, () => string> = {
  e2bListSandboxes: () => '?template=mine',
  e2bListMetrics: () => `?sandbox_ids=${sandbox.sandboxId}`,
  e2bHasTag: () => '?tag=x',
};

interface Reply {
  status: number;
  body: unknown;
}

let server: TestServer;
let sandbox: Sandbox;
/** Of the same project. */
let neighbour: Sandbox;
let gone: Sandbox;
let foreign: Sandbox;
let revoked: string;
let build: string;

const access = (apiKey: string) => ({ apiKey, apiUrl: server.server.url, sandboxUrl: server.server.url });
const tokenOf = (of: Sandbox) => (of as unknown as { envdAccessToken: string }).envdAccessToken;
const key = (secret: string) => ({ 'x-api-key': secret });
/** Enough for every route to get beyond its own form. */
const BODY = JSON.stringify({
  ...{
    templateID: 'mine',
    timeout: 60,
    duration: 60,
    count: 1,
    name: 'mine',
    target: 'mine',
    tags: ['default', 'x'],
    fromTemplate: 'base',
  },
});

beforeAll(async () => {
  server = await startTestServer();
  await server.call('POST', '/v1/volumes', { body: { name: 'of-alice' } });
  sandbox = await Sandbox.create(access(server.alice));
  neighbour = await Sandbox.create(access(server.alice));
  gone = await Sandbox.create(access(server.alice));
  await gone.kill();
  foreign = await Sandbox.create(access(server.bob));
  const made = await server.call('POST', '/v1/keys', {
    body: { name: 'short', project: 'alice' },
    key: server.admin,
  });
  revoked = made.json.secret as string;
  await server.call('DELETE', `/v1/keys/${made.json.key.id as string}`, { key: server.admin });
  const { body } = await send('POST', '/v3/templates', key(server.alice), BODY);
  build = (body as { buildID: string }).buildID;
  await send('POST', pathOf('/v2/templates/{id}/builds/{build}'), key(server.alice), BODY);
  await eventually(
    async () => (await send('GET', '/templates/aliases/mine', key(server.alice))).status === 200,
  );
});
afterAll(() => server[Symbol.asyncDispose]());

function pathOf(path: string): string {
  const id = path.includes('sandboxes') ? sandbox.sandboxId : 'mine';
  return path.replace('{id}', id).replace('{hash}', HASH).replace('{build}', build);
}

function send(method: string, path: string, headers: Record<string, string>, body = BODY): Promise<Reply> {
  return new Promise((resolve, reject) => {
    const { hostname, port } = new URL(server.server.url);
    const length = method === 'GET' ? {} : { 'content-length': Buffer.byteLength(body) };
    const sent = request({ hostname, port, method, path, headers: { ...length, ...headers } }, (response) => {
      let text = '';
      response.on('data', (data: Buffer) => (text += data.toString()));
      response.on('end', () =>
        resolve({
          status: response.statusCode ?? 0,
          body: text.startsWith('{') || text.startsWith('[') ? JSON.parse(text) : text,
        }),
      );
    });
    sent.on('error', reject);
    sent.end(method === 'GET' ? undefined : body);
  });
}

const refused = (status: number) => ({
  status,
  body: { code: status, message: expect.any(String) as string },
});

describe('the control plane', () => {
  it('is all there', () => {
    expect(CONTROL.length).toBeGreaterThan(20);
    expect(CONTROL.filter(({ access: open }) => open !== undefined).map(({ name }) => name)).toEqual([
      'e2bUploadFiles',
      'e2bHealth',
    ]);
  });

  it.each(
    // Whether the API is there is no secret.
    CONTROL.filter(({ name }) => name !== 'e2bHealth').map(
      ({ method, path, name, access: of }) => [method.toUpperCase(), path, name, of] as const,
    ),
  )('%s %s is refused without a key, and with what is none', async (method, path, _name, of) => {
    for (const headers of [
      {},
      key(''),
      key('e2b_0'),
      key(`e2b_${'0'.repeat(40)}`),
      key(revoked),
      key(tokenOf(sandbox)),
      { authorization: `Bearer ${tokenOf(sandbox)}` },
      { authorization: `Bearer ${server.alice.slice(0, -1)}` },
      { 'x-access-token': tokenOf(sandbox) },
    ] as Record<string, string>[]) {
      // The one that is open takes a signed address, and nothing is signed here.
      const query = of === 'open' ? `?project=prj_1&expires=${Date.now() + 60_000}&signature=AAAA` : '';
      expect(await send(method, pathOf(path) + query, headers), JSON.stringify(headers)).toEqual(
        refused(401),
      );
    }
  });

  it.each(
    CONTROL.filter(({ access: of }) => of !== 'open').map(
      ({ method, path, name }) => [method.toUpperCase(), path, name] as const,
    ),
  )('%s %s gives another project nothing', async (method, path, name) => {
    // A list has what the other project owns itself (`OWN`).
    const query = QUERY[name]?.() ?? '';
    expect(await send(method, pathOf(path) + query, key(server.bob))).toEqual(OWN[name] ?? refused(404));
  });

  it('has left everything as it was', async () => {
    expect(await sandbox.isRunning()).toBe(true);
    expect((await sandbox.getInfo()).endAt.getTime()).toBeGreaterThan(Date.now() + 200_000);
    expect((await send('GET', '/templates/mine/tags', key(server.alice))).body).toHaveLength(2);
    expect((await Sandbox.list(access(server.alice)).nextItems()).length).toBe(2);
  });
});

describe("a sandbox's own address", () => {
  const wheres = (of: Sandbox): Record<string, string>[] => [
    { 'e2b-sandbox-id': of.sandboxId, 'e2b-sandbox-port': '49983' },
    { host: `49983-${of.sandboxId}.localhost` },
  ];
  const typed = (path: string) => ({
    'content-type': STREAMS.test(path) ? 'application/connect+json' : 'application/json',
  });

  it('is all there', () => {
    expect(DATA.length).toBeGreaterThan(20);
  });

  it.each(DATA.filter(([, path]) => path !== '/health'))(
    '%s %s is refused without its token, and with any other',
    async (method, path) => {
      const token = tokenOf(sandbox);
      for (const where of wheres(sandbox)) {
        for (const given of [
          undefined,
          '',
          'wrong',
          server.alice,
          tokenOf(neighbour),
          tokenOf(foreign),
          tokenOf(gone),
          `${token}0`,
          token.slice(0, -1),
          tokenOf(neighbour).replace(neighbour.sandboxId, sandbox.sandboxId),
        ]) {
          const headers = {
            ...where,
            ...typed(path),
            ...key(server.alice),
            ...(given !== undefined && { 'x-access-token': given }),
          };
          expect(await send(method, path, headers), String(given)).toEqual(refused(401));
        }
      }
      // A request that names no sandbox is refused as well, where its path is one of envd's.
      if (/^\/(process|filesystem|files)/.test(path))
        expect(await send(method, path, typed(path))).toEqual(refused(401));
    },
  );

  it.each(DATA)('%s %s is not there when its sandbox is gone, whatever opened it', async (method, path) => {
    for (const where of wheres(gone)) {
      const headers = { ...where, ...typed(path), 'x-access-token': tokenOf(gone) };
      expect(await send(method, path, headers)).toMatchObject({ status: 502, body: { code: 502 } });
    }
  });

  it('notes who was turned away, and how often, once in a while', async () => {
    const events = await server.call('GET', '/v1/events?limit=1000', { key: server.alice });
    const told = (events.json.events as { type: string; sandbox: string | null; outcome: string }[]).filter(
      ({ type }) => type === 'token.refused',
    );
    expect(told).toHaveLength(1);
    expect(told[0]).toMatchObject({ sandbox: `sbx_${sandbox.sandboxId}`, outcome: 'unauthenticated' });
    expect(JSON.stringify(events.json)).not.toContain(tokenOf(neighbour));
  });
});
