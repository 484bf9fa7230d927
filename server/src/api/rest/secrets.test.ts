/** Stored secrets through the API, with the memory backend, the real egress and a real HTTPS server. */
import { once } from 'node:events';
import { createServer } from 'node:https';
import { request as httpRequest, type IncomingMessage } from 'node:http';
import type { AddressInfo } from 'node:net';
import { connect as connectTls } from 'node:tls';
import type { NetworkPolicy } from '@cay/sdk/protocol';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import type { Program } from '../../backends/memory/program.ts';
import { textOf } from '../../egress/testing/program.ts';
import { testStartedEgress, type TestStartedEgress } from '../../egress/testing/test-started-egress.ts';
import { newAuthority, openAuthority } from '../../egress/tls/authority.ts';
import { startTestServer, type TestServer } from '../testing/test-server.ts';

const HOST = 'api.example.org';
const VALUE = 'canary-of-the-secret';
const publicMaterial = newAuthority();
const publicAuthority = openAuthority(publicMaterial);

/**
 * `ask HOST PORT [HEADER]`: one request over HTTPS, with a header in which `$NAME` is replaced. Prints the
 * answer.
 */
const ask: Program = async ({ argv, env, stdout, connect }) => {
  const [, host, port, header = 'x-none: 1'] = argv;
  const [name, value] = header.replace(/\$(\w+)/, (_, variable: string) => env[variable] ?? '').split(': ');
  const socket = connectTls({
    socket: await connect(host!, Number(port)),
    servername: host!,
    rejectUnauthorized: false,
  });
  const outgoing = httpRequest({
    createConnection: () => socket,
    headers: { host: `${host}:${port}`, [name!]: value },
  });
  outgoing.end();
  const [answer] = (await once(outgoing, 'response')) as [IncomingMessage];
  await stdout.write(`${answer.statusCode} ${await textOf(answer)}`);
  socket.destroy();
  return 0;
};
const printEnv: Program = async ({ argv, env, stdout }) => {
  await stdout.write(env[argv[1]!] ?? '');
  return 0;
};

let egress: TestStartedEgress;
let server: TestServer;
let port: number;
let seen: Record<string, unknown>[];
const opened: (() => unknown)[] = [];
beforeEach(async () => {
  egress = await testStartedEgress({ trusted: [publicMaterial.certificate] });
  server = await startTestServer({ egress, commands: { ask, printenv: printEnv } });
  seen = [];
  const site = createServer(
    { SNICallback: (name, done) => done(null, publicAuthority.contextFor(name)) },
    (message, response) => {
      seen.push(message.headers);
      response.end(`you sent ${String(message.headers.authorization)}`);
    },
  );
  site.listen(0, '127.0.0.1');
  await once(site, 'listening');
  port = (site.address() as AddressInfo).port;
  opened.push(
    () => site.closeAllConnections(),
    () => site.close(),
  );
  egress.names.set(HOST, ['127.0.0.1']);
  egress.names.set('other.example.org', ['127.0.0.1']);
});
afterEach(async () => {
  for (const close of opened.splice(0)) close();
  await server[Symbol.asyncDispose]();
  egress[Symbol.dispose]();
});

const store = (name: string, value = VALUE, key?: string) =>
  server.call('PUT', `/v1/secrets/${name}`, { body: { value }, ...(key !== undefined && { key }) });
const exec = async (id: string, ...argv: string[]) =>
  (await server.call('POST', `/v1/sandboxes/${id}/exec`, { body: { argv } })).json as { stdout: string };
const withToken = (to = `${HOST}:${port}`): NetworkPolicy => ({
  allow: [
    {
      to,
      put: { as: 'header', header: 'Authorization', value: 'Bearer {secret}', secret: 'TOKEN', env: 'TOKEN' },
    },
    // The server sees requests where a rule has a condition on them.
    { to: `other.example.org:${port}`, methods: ['GET'] },
  ],
});

describe('a stored secret', () => {
  it('is never answered, and its version grows', async () => {
    const first = await store('TOKEN');
    expect(first.status).toBe(201);
    expect(first.json).toMatchObject({ name: 'TOKEN', version: 1, bytes: VALUE.length });
    const second = await store('TOKEN', `${VALUE}-2`);
    expect(second.status).toBe(200);
    expect(second.json).toMatchObject({ version: 2, bytes: VALUE.length + 2 });
    const listed = await server.call('GET', '/v1/secrets');
    expect(listed.json.secrets).toEqual([second.json]);
    const shown = await server.call('GET', '/v1/secrets/TOKEN');
    expect(shown.json).toEqual({ ...second.json, usedBy: [] });
    const { json: log } = await server.call('GET', '/v1/events');
    expect(log.events).toContainEqual(
      expect.objectContaining({ type: 'secret.set', data: { secret: 'TOKEN', version: 2 } }),
    );
    for (const { text } of [first, second, listed, shown]) expect(text).not.toContain(VALUE);
    expect(JSON.stringify(log)).not.toContain(VALUE);
  });

  it('belongs to its project', async () => {
    await store('TOKEN');
    const { bob } = server;
    expect((await server.call('GET', '/v1/secrets/TOKEN', { key: bob })).status).toBe(404);
    expect((await server.call('GET', '/v1/secrets', { key: bob })).json.secrets).toEqual([]);
    await server.call('DELETE', '/v1/secrets/TOKEN', { key: bob });
    expect((await server.call('GET', '/v1/secrets/TOKEN')).status).toBe(200);
    const body = { network: withToken() };
    expect((await server.call('POST', '/v1/sandboxes', { body, key: bob })).json.error).toMatchObject({
      code: 'failed_precondition',
      details: { secret: 'TOKEN' },
    });
  });

  it.each([
    ['a b', VALUE],
    ['1TOKEN', VALUE],
    ['TOKEN', ''],
    ['TOKEN', 'x'.repeat(65_537)],
  ])('named %j is refused with a wrong name or value', async (name, value) => {
    const { status, json } = await store(encodeURIComponent(name), value);
    expect(status).toBe(400);
    expect(json.error.code).toBe('invalid_argument');
    expect(JSON.stringify(json)).not.toContain('xxxx');
  });

  it('is bounded in number and bytes', async () => {
    const project = (await server.call('GET', '/v1/projects')).json.projects[0].id as string;
    const quota = (given: object) =>
      server.call('PATCH', `/v1/projects/${project}`, { body: { quota: given }, key: server.admin });
    await quota({ secrets: 1, secretBytes: 30 });
    expect((await store('ONE')).status).toBe(201);
    expect((await store('TWO')).json.error).toMatchObject({ details: { quota: 'secrets' } });
    expect((await store('ONE', 'x'.repeat(31))).json.error).toMatchObject({
      details: { quota: 'secretBytes' },
    });
    expect((await store('ONE', 'x'.repeat(30))).status).toBe(200);
  });
});

describe('a rule with a secret', () => {
  it('needs a secret that exists, and keeps it', async () => {
    const box = await server.create();
    const set = () =>
      server.call('PUT', `/v1/sandboxes/${box.id}/network`, { body: { policy: withToken() } });
    expect((await set()).json.error).toMatchObject({
      code: 'failed_precondition',
      message: expect.stringContaining('the secret "TOKEN"') as string,
    });
    const dry = await server.call('POST', '/v1/validate', { body: { network: withToken() } });
    expect(dry.json.problems).toMatchObject([{ field: 'network', code: 'failed_precondition' }]);
    await store('TOKEN');
    expect((await set()).status).toBe(200);
    expect((await server.call('GET', '/v1/secrets/TOKEN')).json.usedBy).toEqual([box.id]);
    expect((await server.call('DELETE', '/v1/secrets/TOKEN')).json.error).toMatchObject({
      code: 'failed_precondition',
      details: { usedBy: [box.id] },
    });
    expect((await server.call('DELETE', '/v1/secrets/TOKEN?force=true')).status).toBe(204);
    const { stdout } = await exec(box.id, 'ask', HOST, String(port));
    expect(stdout).toContain('403');
    expect(stdout).toContain('is not set');
    expect(seen).toEqual([]);
  });

  it('puts it on requests, hides it inside, and uses a new value at once', async () => {
    await store('TOKEN');
    const box = await server.create({ network: withToken() });
    const first = await exec(box.id, 'ask', HOST, String(port), 'authorization: Bearer $TOKEN');
    expect(first.stdout).toBe(`200 you sent Bearer ${'*'.repeat(VALUE.length)}`);
    await store('TOKEN', 'rotated');
    await exec(box.id, 'ask', HOST, String(port));
    expect(seen.map(({ authorization }) => authorization)).toEqual([`Bearer ${VALUE}`, 'Bearer rotated']);
    const { stdout: placeholder } = await exec(box.id, 'printenv', 'TOKEN');
    expect(placeholder).toMatch(/^cay-placeholder-[0-9a-f]{32}$/);
  });

  it('refuses its placeholder anywhere else, and records that', async () => {
    await store('TOKEN');
    const box = await server.create({ network: withToken() });
    const { stdout } = await exec(box.id, 'ask', 'other.example.org', String(port), 'x-key: $TOKEN');
    expect(stdout).not.toContain(VALUE);
    expect(seen).toEqual([]);
    const { json } = await server.call('GET', `/v1/sandboxes/${box.id}/network/attempts`);
    expect(json.attempts[0]).toMatchObject({ verdict: 'denied', reason: 'placeholder' });
  });

  it('is inherited by forks, whose environment and memory have the same placeholder', async () => {
    await store('TOKEN');
    const box = await server.create({ network: withToken() });
    const { stdout: placeholder } = await exec(box.id, 'printenv', 'TOKEN');
    const { json } = await server.call('POST', `/v1/sandboxes/${box.id}/fork`, { body: {} });
    const child = json.sandboxes[0].id as string;
    expect((await exec(child, 'printenv', 'TOKEN')).stdout).toBe(placeholder);
    await exec(child, 'ask', HOST, String(port));
    expect(seen.at(-1)).toMatchObject({ authorization: `Bearer ${VALUE}` });
  });
});
