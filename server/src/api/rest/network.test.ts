/** The network of sandboxes through the API, with the memory backend and the real egress. */
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { Sandbox } from '@cay/sdk/protocol';
import { pino } from 'pino';
import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import { memoryBackend } from '../../backends/memory/memory.ts';
import type { Program } from '../../backends/memory/program.ts';
import { echoServer } from '../../egress/testing/servers.ts';
import { testStartedEgress, type TestStartedEgress } from '../../egress/testing/test-started-egress.ts';
import { serve } from '../../serve.ts';
import { startTestServer, type TestServer } from '../testing/test-server.ts';

/** Connects, says hello, and prints what comes back until the end. */
const dial: Program = async ({ argv, stdout, connect }) => {
  const connection = await connect(argv[1]!, Number(argv[2]));
  connection.end('hello');
  for await (const chunk of connection) await stdout.write(chunk as Uint8Array);
  return 0;
};
/** The same, and stays connected. */
const hold: Program = async ({ argv, stdout, connect }) => {
  const connection = await connect(argv[1]!, Number(argv[2]));
  connection.write('hello');
  for await (const chunk of connection) await stdout.write(chunk as Uint8Array);
  return 0;
};

let egress: TestStartedEgress;
let server: TestServer;
let port: number;
beforeEach(async () => {
  egress = await testStartedEgress();
  server = await startTestServer({ egress, commands: { dial, hold } });
  port = (await echoServer()).port;
  egress.names.set('echo.example.org', ['127.0.0.1']);
});
afterEach(async () => {
  await server[Symbol.asyncDispose]();
  egress[Symbol.dispose]();
});

const path = (id: string, rest = '') => `/v1/sandboxes/${id}/network${rest}`;
const exec = async (id: string, ...argv: string[]) =>
  (await server.call('POST', `/v1/sandboxes/${id}/exec`, { body: { argv } })).json;
const reach = (id: string) => exec(id, 'dial', 'echo.example.org', String(port));
const rule = () => `echo.example.org:${port}`;
const set = (id: string, policy: unknown) => server.call('PUT', path(id), { body: { policy } });

describe('the network policy of a sandbox', () => {
  it('is the default of the installation unless a create says otherwise', async () => {
    const usual = await server.create();
    expect((await server.call('GET', path(usual.id))).json).toMatchObject({
      policy: 'packages',
      project: null,
      installation: 'public',
    });
    const none = await server.create({ network: 'none' });
    expect((await server.call('GET', path(none.id))).json.policy).toBe('none');
    expect(await reach(none.id)).toMatchObject({ exitCode: 1 });
    const open = await server.create({ network: { allow: [`ECHO.example.org:${port}`] } });
    expect((await server.call('GET', path(open.id))).json.policy).toEqual({ allow: [rule()] });
    expect(await reach(open.id)).toMatchObject({ exitCode: 0, stdout: 'HELLOBYE' });
  });

  it('is refused if a rule cannot be read', async () => {
    const body = { network: { allow: ['10.0.0.1/8'] } };
    expect(await server.call('POST', '/v1/sandboxes', { body })).toMatchObject({
      status: 400,
      json: { error: { code: 'invalid_argument', message: expect.stringContaining('10.0.0.1/8') } },
    });
    const { json } = await server.call('POST', '/v1/validate', { body });
    expect(json).toMatchObject({ ok: false, problems: [{ field: 'network', code: 'invalid_argument' }] });
    const { id } = await server.create();
    expect((await set(id, { allow: ['user@example.org'] })).status).toBe(400);
    expect((await server.call('GET', path(id))).json.policy).toBe('packages');
  });

  it('can be changed at any time, which cuts what is not allowed any more', async () => {
    const { id } = await server.create({ network: { allow: [rule()] } });
    const held = exec(id, 'hold', 'echo.example.org', String(port));
    await vi.waitFor(() => expect(egress.engine.stats(id as never)!.bytesIn).toBe(5));
    expect((await set(id, 'none')).json).toMatchObject({ policy: 'none' });
    expect(await held).toMatchObject({ stdout: 'HELLO' });
    expect(await reach(id)).toMatchObject({ exitCode: 1 });
    const added = await server.call('POST', path(id, '/rules'), { body: { allow: [rule()] } });
    expect(added.json.policy).toEqual({ base: 'none', allow: [rule()], deny: [] });
    expect(await reach(id)).toMatchObject({ exitCode: 0 });
    const denied = await server.call('POST', path(id, '/rules'), { body: { deny: [rule()] } });
    expect(denied.json.policy).toEqual({ base: 'none', allow: [], deny: [rule()] });
    expect(await reach(id)).toMatchObject({ exitCode: 1 });
  });

  it('belongs to its project', async () => {
    const { id } = await server.create();
    for (const [method, rest, body] of [
      ['GET', '', undefined],
      ['PUT', '', { policy: 'none' }],
      ['POST', '/rules', { allow: ['npm'] }],
      ['GET', '/attempts', undefined],
      ['GET', '/pending', undefined],
      ['POST', '/pending/apr_1', { verdict: 'allow' }],
    ] as const)
      expect((await server.call(method, path(id, rest), { body, key: server.bob })).status).toBe(404);
  });

  it('is kept over stop, start, fork, snapshot and rollback, and forgotten with the sandbox', async () => {
    const { id } = await server.create({ network: { allow: [rule()] } });
    await server.call('POST', `/v1/sandboxes/${id}/stop`, { body: {} });
    await server.call('POST', `/v1/sandboxes/${id}/start`);
    expect(await reach(id)).toMatchObject({ exitCode: 0 });
    const forked = await server.call('POST', `/v1/sandboxes/${id}/fork`, { body: { count: 2 } });
    for (const child of forked.json.sandboxes) expect(await reach(child.id)).toMatchObject({ exitCode: 0 });
    const snapshot = (await server.call('POST', `/v1/sandboxes/${id}/snapshots`, { body: {} })).json;
    await set(id, 'none');
    const clone = await server.create({ snapshot: snapshot.id });
    expect(await reach(clone.id)).toMatchObject({ exitCode: 0 });
    // A rollback is of files: what was forbidden since stays forbidden.
    await server.call('POST', `/v1/sandboxes/${id}/rollback`, { body: { to: snapshot.id } });
    expect(await reach(id)).toMatchObject({ exitCode: 1 });
    await server.call('DELETE', `/v1/sandboxes/${clone.id}`);
    expect(egress.engine.policies.get(clone.id as never)).toBeUndefined();
  });

  /** A template whose sandboxes may reach what the policy allows. */
  const template = async (name: string, network: unknown) => {
    const { id } = await server.create({ network: 'none' });
    const snapshot = (await server.call('POST', `/v1/sandboxes/${id}/snapshots`, { body: {} })).json;
    const body = { snapshot: snapshot.id, network, replace: true };
    expect((await server.call('PUT', `/v1/templates/${name}`, { body })).status).toBe(200);
  };

  it('is bounded by the policy of its template, which is also the default there', async () => {
    await template('narrow', { allow: [rule()] });
    const usual = await server.create({ template: 'narrow' });
    expect((await server.call('GET', path(usual.id))).json.policy).toEqual({ allow: [rule()] });
    expect(await reach(usual.id)).toMatchObject({ exitCode: 0 });

    await template('closed', 'none');
    const wide = await server.create({ template: 'closed', network: { allow: [rule()] } });
    expect(await reach(wide.id)).toMatchObject({ exitCode: 1 });
    // Neither a rule of its own later nor another template of that name lifts it.
    await set(wide.id, { allow: [rule(), '*:*'] });
    expect(await reach(wide.id)).toMatchObject({ exitCode: 1 });
    await template('closed', { allow: ['*:*'] });
    expect(await reach(wide.id)).toMatchObject({ exitCode: 1 });
    await server.call('DELETE', '/v1/templates/closed');
    expect(await reach(wide.id)).toMatchObject({ exitCode: 1 });
  });

  it.each([
    ['pause', (id: string) => server.call('POST', `/v1/sandboxes/${id}/pause`, { body: {} })],
    [
      'freezing',
      (id: string) => server.call('POST', `/v1/sandboxes/${id}/pause`, { body: { as: 'frozen' } }),
    ],
    ['stop', (id: string) => server.call('POST', `/v1/sandboxes/${id}/stop`, { body: {} })],
    [
      'rollback',
      async (id: string) => {
        const taken = await server.call('POST', `/v1/sandboxes/${id}/snapshots`, { body: {} });
        return server.call('POST', `/v1/sandboxes/${id}/rollback`, { body: { to: taken.json.id } });
      },
    ],
  ])('of every layer is kept over %s, and by forks', async (_, change) => {
    await template('base-of-it', { allow: [rule(), 'other.example.org'] });
    const open = await server.create({ template: 'base-of-it', network: { allow: [rule()] } });
    await template('base-of-it', 'none');
    const closed = await server.create({ template: 'base-of-it', network: { allow: [rule()] } });
    for (const [{ id }, exitCode] of [
      [open, 0],
      [closed, 1],
    ] as const) {
      expect((await change(id)).status).toBeLessThan(300);
      await server.call('POST', `/v1/sandboxes/${id}/start`);
      expect(await reach(id)).toMatchObject({ exitCode });
      const forked = await server.call('POST', `/v1/sandboxes/${id}/fork`, { body: { count: 1 } });
      expect(await reach(forked.json.sandboxes[0].id)).toMatchObject({ exitCode });
      expect(egress.engine.policies.get(forked.json.sandboxes[0].id)).toEqual(
        egress.engine.policies.get(id as never),
      );
    }
  });

  it('is bounded by the policy of its project, at once', async () => {
    const { id } = await server.create({ network: { allow: [rule()] } });
    const projects = (await server.call('GET', '/v1/projects')).json.projects;
    const bound = (network: unknown, key = server.admin) =>
      server.call('PATCH', `/v1/projects/${projects[0].id}`, { body: { network }, key });
    expect((await bound('none', server.alice)).status).toBe(403);
    expect((await bound('none')).json).toMatchObject({ network: 'none' });
    expect(await reach(id)).toMatchObject({ exitCode: 1 });
    expect((await server.call('GET', path(id))).json.project).toBe('none');
    const later = await server.create({ network: { allow: [rule()] } });
    expect(await reach(later.id)).toMatchObject({ exitCode: 1 });
    expect((await bound({ allow: ['*:*'] })).status).toBe(200);
    expect(await reach(id)).toMatchObject({ exitCode: 0 });
    expect((await bound(null)).json).toMatchObject({ network: null });
    expect(await reach(later.id)).toMatchObject({ exitCode: 0 });
    expect((await bound({ allow: ['10.0.0.1/8'] })).status).toBe(400);
  });

  it('cannot reach private addresses that the installation does not allow', async () => {
    egress.names.set('inside.example.org', ['127.0.0.9']);
    const { id } = await server.create({ network: { base: 'public', allow: ['127.0.0.0/8'] } });
    expect(await exec(id, 'dial', 'inside.example.org', String(port))).toMatchObject({ exitCode: 1 });
  });

  it('shows no header that a rule sets', async () => {
    const put = { as: 'header', header: 'Authorization', value: 'Bearer canary-of-a-rule' };
    const network = { allow: [{ to: 'api.example.org', put }] };
    const { id } = await server.create({ network } as never);
    const { text } = await server.call('GET', path(id));
    expect(text).toContain('"value":"***"');
    expect(text).not.toContain('canary');
  });
});

describe('attempts', () => {
  it('are listed, streamed, counted and part of the result of a command', async () => {
    const { id } = await server.create({ network: { allow: [rule()] } });
    const stream = await server.fetch(path(id, '/attempts'), {
      headers: { accept: 'application/x-ndjson' },
    });
    expect(await reach(id)).not.toHaveProperty('denied');
    const refused = await exec(id, 'dial', 'other.example.org', '8443');
    expect(refused).toMatchObject({
      exitCode: 1,
      denied: [{ name: 'other.example.org', port: 8443, reason: 'no_rule', rule: 'other.example.org:8443' }],
    });
    expect((await server.call('GET', path(id, '/attempts'))).json.attempts).toMatchObject([
      { verdict: 'denied', name: 'other.example.org', port: 8443 },
      { verdict: 'allowed', name: 'echo.example.org', port, bytesOut: 5, bytesIn: 8 },
    ]);
    let text = '';
    for await (const chunk of stream.body!) {
      text += Buffer.from(chunk).toString();
      if (text.split('\n').length > 2) break;
    }
    expect(
      text
        .trim()
        .split('\n')
        .map((line) => JSON.parse(line).verdict),
    ).toEqual(['allowed', 'denied']);
    expect((await server.call('GET', `/v1/sandboxes/${id}/stats`)).json).toMatchObject({
      networkRxBytes: 8,
      networkTxBytes: 5,
    });
    const metrics = (await server.call('GET', '/metrics', { key: server.admin })).text;
    expect(metrics).toContain('cay_network_attempts_total{verdict="denied"} 1');
    expect(metrics).toContain('cay_network_bytes_total{direction="in"} 8');
  });

  it('that are denied make one event for many', async () => {
    const { id } = await server.create();
    for (let attempt = 0; attempt < 5; attempt++) await exec(id, 'dial', 'other.example.org', '8443');
    await vi.waitFor(
      async () => {
        const { json } = await server.call('GET', `/v1/events?sandbox=${id}`);
        const found = json.events.filter(({ type }: { type: string }) => type === 'network.denied');
        expect(found).toMatchObject([
          { data: { count: 5, targets: [{ target: 'other.example.org:8443', count: 5 }] } },
        ]);
      },
      { timeout: 5000 },
    );
  });
});

describe("E2B's network options", () => {
  const create = async (body: object) => {
    const made = await server.call('POST', '/v2/sandboxes', {
      body: { templateID: 'base', timeout: 60, ...body },
      headers: { 'x-api-key': server.alice },
    });
    expect(made.status).toBe(201);
    const { json } = await server.call('GET', '/v1/sandboxes');
    return { e2b: made.json.sandboxID as string, id: json.sandboxes[0].id as string };
  };
  const policyOf = async (id: string) => (await server.call('GET', path(id))).json.policy;

  it('become policies', async () => {
    const all = '0.0.0.0/0';
    expect(await policyOf((await create({})).id)).toBe('public');
    const nothing = { base: 'none', precedence: 'allow', refusals: 'cut', allow: [], deny: [] };
    expect(await policyOf((await create({ allow_internet_access: false })).id)).toEqual(nothing);
    const { e2b, id } = await create({ network: { denyOut: [all], allowOut: [rule()] } });
    expect(await reach(id)).toMatchObject({ exitCode: 0 });
    expect(await exec(id, 'dial', 'other.example.org', '443')).toMatchObject({ exitCode: 1 });
    const shown = await server.call('GET', `/sandboxes/${e2b}`, { headers: { 'x-api-key': server.alice } });
    expect(shown.json).toMatchObject({
      allowInternetAccess: false,
      network: { allowOut: [rule()], denyOut: [all] },
    });
    const update = (body: object) =>
      server.call('PUT', `/sandboxes/${e2b}/network`, { body, headers: { 'x-api-key': server.alice } });
    expect((await update({ denyOut: [all] })).status).toBe(204);
    expect(await policyOf(id)).toEqual(nothing);
    expect(await reach(id)).toMatchObject({ exitCode: 1 });
    expect((await update({ dnsServers: ['1.1.1.1'] })).status).toBe(501);
    expect((await update({ denyOut: ['8.8.8.8'], allowOut: ['*.example.com'] })).status).toBe(204);
    expect(await policyOf(id)).toMatchObject({ base: 'public', precedence: 'allow' });
  });
});

describe('approvals', () => {
  it('wait for an answer, which holds for a time', async () => {
    const { id } = await server.create({ network: { otherwise: 'ask' } });
    const pending = async () => (await server.call('GET', path(id, '/pending'))).json.pending;
    const answer = async (verdict: string) => {
      const [one] = await vi.waitFor(async () => {
        const found = await pending();
        expect(found).toHaveLength(1);
        return found;
      });
      expect(one).toMatchObject({ name: 'echo.example.org', port, rule: rule() });
      return server.call('POST', path(id, `/pending/${one.id}`), { body: { verdict } });
    };
    const refused = reach(id);
    expect((await answer('deny')).status).toBe(204);
    expect(await refused).toMatchObject({ exitCode: 1 });
    const allowed = reach(id);
    expect((await answer('allow')).status).toBe(204);
    expect(await allowed).toMatchObject({ exitCode: 0, stdout: 'HELLOBYE' });
    expect(await reach(id)).toMatchObject({ exitCode: 0 });
    expect(await pending()).toEqual([]);
    const gone = await server.call('POST', path(id, '/pending/apr_gone'), { body: { verdict: 'allow' } });
    expect(gone.status).toBe(404);
    const { json } = await server.call('GET', `/v1/events?sandbox=${id}`);
    const types = json.events.map(({ type }: { type: string }) => type);
    expect(types.filter((type: string) => type === 'network.asked')).toHaveLength(2);
    expect(types.filter((type: string) => type === 'network.answered')).toHaveLength(2);
  });
});

it('a server that starts again gives the egress what is recorded, before it answers', async () => {
  const dataDir = mkdtempSync(join(tmpdir(), 'cay-network-'));
  const backend = memoryBackend({ commands: { dial }, egress: egress.engine });
  const options = { dataDir, port: 0, log: pino({ level: 'silent' }) };
  const first = await serve({ ...options, backend: { ...backend, close: async () => {} }, egress });
  const call = async (url: string, key: string, method: string, rest: string, body?: unknown) =>
    (
      await fetch(`${url}${rest}`, {
        method,
        headers: { authorization: `Bearer ${key}` },
        ...(body !== undefined && { body: JSON.stringify(body) }),
      })
    ).json();
  const key = first.adminKey!;
  const body = { network: { allow: [rule()] } };
  const made = (await call(first.url, key, 'POST', '/v1/sandboxes', body)) as Sandbox;
  await first.close();
  // As an engine that was just opened.
  egress.engine.policies.remove(made.id);
  const second = await serve({ ...options, backend, egress });
  try {
    expect(egress.engine.policies.get(made.id)).toEqual([{ allow: [rule()] }, 'public']);
  } finally {
    await second.close();
    rmSync(dataDir, { recursive: true, force: true });
  }
});
