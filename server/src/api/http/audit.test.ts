import { setTimeout as sleep } from 'node:timers/promises';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import type { AuditEvent, CayEvent } from '@cay/sdk/protocol';
import { startTestServer, type TestServer } from '../testing/test-server.ts';

let test: TestServer;
let path: string;
let sandbox: string;
beforeAll(async () => {
  test = await startTestServer();
  sandbox = (await test.create({ env: { SANDBOX_TOKEN: 'sandbox-env-value' }, ports: [3000] })).id;
  path = `/v1/sandboxes/${sandbox}`;
});
afterAll(() => test[Symbol.asyncDispose]());

const eventsOf = async (query = '') =>
  (await test.call('GET', `/v1/events${query}`, { key: test.alice })).json.events as CayEvent[];

async function exported(query = ''): Promise<AuditEvent[]> {
  const { text } = await test.call('GET', `/v1/audit/export${query}`, { key: test.admin });
  return text
    .split('\n')
    .filter((line) => line !== '')
    .map((line) => JSON.parse(line) as AuditEvent);
}

describe('the audit', () => {
  it('has who did what to which sandbox, and the outcome', async () => {
    await test.call('PUT', `${path}/files?path=/tmp/a`, { body: 'content' });
    await test.call('POST', `${path}/files/move`, { body: { from: '/tmp/a', to: '/tmp/b', user: 'root' } });
    await test.call('POST', `${path}/files/chmod`, { body: { path: '/tmp/b', mode: 0o600 } });
    await test.call('DELETE', `${path}/files?path=/tmp/b`);
    await test.call('DELETE', `${path}/files?path=/tmp/none`);
    await test.call('PUT', `${path}/ports/4000`, { body: {} });
    await test.call('POST', `${path}/exec`, { body: { argv: ['no-such-program'] } });
    await test.call('POST', `${path}/exec`, { body: { shell: 'exit 3' } });
    await test.call('POST', '/v1/sandboxes', { body: { limits: { cpus: -1 } } });
    const { id: key } = ((await test.call('GET', '/v1/keys')).json.keys as { id: string }[])[0]!;
    const seen = (await eventsOf()).filter(({ type }) => /^(file|port|command|call)\./.test(type));
    expect(seen.map(({ type, outcome }) => `${type} ${outcome}`)).toEqual([
      'file.written ok',
      'file.moved ok',
      'file.changed ok',
      'file.removed ok',
      'call.failed not_found',
      'port.exposed ok',
      'command.started not_found',
      'command.started ok',
      'command.ended ok',
      'call.failed invalid_argument',
    ]);
    expect(seen.every((event) => event.key === key)).toBe(true);
    expect(seen.slice(0, -1).every((event) => event.sandbox === sandbox)).toBe(true);
    expect(seen[0]!.data).toEqual({ user: 'user', path: '/tmp/a', sizeBytes: 7 });
    expect(seen[1]!.data).toEqual({ user: 'root', from: '/tmp/a', to: '/tmp/b' });
    expect(seen[4]!.data).toEqual({ operation: 'removeFile' });
    expect(seen[8]!.data).toMatchObject({ kind: 'exited', exitCode: 3 });
  });

  it('has the end of a command whose client disconnected first', async () => {
    const gone = new AbortController();
    const body = JSON.stringify({ id: 'left', shell: 'echo begun; sleep 0.3; exit 5' });
    const response = await test.fetch(`${path}/exec`, {
      method: 'POST',
      body,
      headers: { accept: 'application/x-ndjson' },
      signal: gone.signal,
    });
    await response.body!.getReader().read();
    gone.abort();
    const ends = async () =>
      (await eventsOf()).filter(({ type, data }) => type === 'command.ended' && data['command'] === 'left');
    for (let tries = 0; (await ends()).length === 0 && tries < 200; tries++) await sleep(50);
    expect(await ends()).toMatchObject([{ data: { kind: 'exited', exitCode: 5 } }]);
  });

  it('has no environment, input, content, token or key in it', async () => {
    const token = (await test.call('GET', path)).json.ports[0].token as string;
    const body = {
      argv: ['cat', 'run-env-value', `${test.alice}`, 'cay_token=abcdef0123456789'],
      env: { A: 'run-env-value' },
      input: 'standard-input-text',
    };
    await test.call('POST', `${path}/exec`, { body });
    await test.call('POST', `${path}/exec`, {
      body: { ...body, argv: undefined, shell: 'echo sandbox-env-value run-env-value' },
    });
    await test.call('POST', `${path}/commands`, {
      body,
      headers: { 'idempotency-key': 'secret-idempotency-key' },
    });
    await test.call('PUT', `${path}/files?path=/tmp/secret`, { body: 'file-content-text' });
    await test.call('GET', `/preview/${sandbox}/3000/?cay_token=${token}`, { key: null });
    await test.call('GET', '/v1/version', { key: `e2b_${'1'.repeat(40)}` });
    const created = (
      await test.call('POST', '/v1/webhooks', { body: { url: 'https://example.com/hook-path-secret' } })
    ).json as {
      secret: string;
    };
    const all = JSON.stringify(await exported());
    for (const secret of [
      'sandbox-env-value',
      'run-env-value',
      'standard-input-text',
      'file-content-text',
      'secret-idempotency-key',
      'abcdef0123456789',
      'hook-path-secret',
      token,
      test.alice,
      test.admin,
      '1'.repeat(40),
      created.secret,
    ])
      expect(all).not.toContain(secret);
  });

  it('notes keys that were refused, and many of them once', async () => {
    for (let i = 0; i < 50; i++)
      await test.call('GET', '/v1/sandboxes', { key: `e2b_${String(i).padStart(40, '0')}` });
    const refused = (await exported('?type=key.refused')).filter(
      ({ outcome }) => outcome === 'unauthenticated',
    );
    expect(refused).toHaveLength(1);
    expect(refused[0]).toMatchObject({
      key: null,
      project: null,
      data: { from: expect.stringContaining('127.0.0.1') },
    });
  });

  it('is verified and exported by admins alone, with all projects in it', async () => {
    await test.create({}, test.bob);
    for (const route of ['verify', 'export'])
      expect((await test.call('GET', `/v1/audit/${route}`)).status).toBe(403);
    const verdict = (await test.call('GET', '/v1/audit/verify', { key: test.admin })).json;
    const all = await exported();
    expect(verdict).toMatchObject({
      ok: true,
      first: 1,
      sealed: true,
      head: all.at(-1)!.hash,
      events: all.length,
    });
    expect(new Set(all.map(({ project }) => project)).size).toBeGreaterThan(2);
    const ofOne = await exported(`?sandbox=${sandbox}&type=file.written`);
    expect(ofOne.length).toBeGreaterThan(0);
    expect(ofOne.every((event) => event.sandbox === sandbox && event.type === 'file.written')).toBe(true);
    const later = new Date(Date.now() + 3_600_000).toISOString();
    expect(await exported(`?since=${later}`)).toEqual([]);
    expect((await exported(`?until=${later}`)).length).toBe(all.length);
    expect((await test.call('GET', '/v1/audit/export?since=yesterday', { key: test.admin })).status).toBe(
      400,
    );
  });
});
