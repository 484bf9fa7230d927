import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { operationsOf, type Operation } from '../testing/operations.ts';
import { startTestServer, type TestServer } from '../testing/test-server.ts';

let test: TestServer;
let operations: Operation[];
let sandbox: string;

beforeAll(async () => {
  test = await startTestServer();
  sandbox = (await test.create({ name: 'mine', ports: [3000] })).id;
  await test.call('POST', `/v1/sandboxes/${sandbox}/commands`, {
    body: { id: 'known', argv: ['sleep', '1000'] },
  });
  operations = operationsOf((await test.call('GET', '/openapi.json', { key: null })).json);
});
afterAll(() => test[Symbol.asyncDispose]());

const call = (operation: Operation, key: string | null) =>
  test.call(operation.method, operation.url(sandbox), {
    key,
    body: operation.body,
    headers: { accept: 'application/json' },
  });
const streams = (operation: Operation) => /watch|stream/.test(operation.path);

describe('every route of the OpenAPI document', () => {
  it('is one of more than forty', () => {
    expect(operations.length).toBeGreaterThan(40);
  });

  it('refuses a request without a key, unless it is open', async () => {
    for (const operation of operations) {
      const { status, headers, json } = await call(operation, null);
      if (operation.open) expect(status, operation.id).toBe(200);
      else {
        expect(status, operation.id).toBe(401);
        expect(headers.get('www-authenticate')).toContain('Bearer');
        expect(json.error.code).toBe('unauthenticated');
      }
    }
  });

  it('refuses keys that are unknown or have no key’s shape', async () => {
    for (const operation of operations.filter(({ open }) => !open)) {
      for (const key of [`e2b_${'0'.repeat(40)}`, 'nonsense', `${test.alice}0`])
        expect((await call(operation, key)).status, operation.id).toBe(401);
    }
  });

  it('takes the key as a bearer and as X-API-Key', async () => {
    const ways: Record<string, string>[] = [
      { authorization: `bearer ${test.alice}` },
      { 'x-api-key': test.alice },
    ];
    for (const headers of ways) {
      expect((await test.call('GET', '/v1/version', { key: null, headers })).status).toBe(200);
    }
  });

  it('keeps admin routes from members', async () => {
    const admin = operations.filter(({ access }) => access === 'admin');
    expect(admin.map(({ id }) => id).toSorted()).toEqual([
      'backup',
      'createKey',
      'createProject',
      'exportAudit',
      'importImage',
      'inspectImage',
      'listEnforcementReports',
      'listImages',
      'removeImage',
      'removeProject',
      'revokeKey',
      'runEnforcementReport',
      'sweep',
      'updateProject',
      'verifyAudit',
    ]);
    for (const operation of admin) expect((await call(operation, test.alice)).status, operation.id).toBe(403);
  });

  it('lets a key of the role metrics read the metrics and nothing else', async () => {
    const { json } = await test.call('POST', '/v1/keys', {
      key: test.admin,
      body: { name: 'prometheus', role: 'metrics' },
    });
    expect(json.key.role).toBe('metrics');
    for (const operation of operations.filter(({ open }) => !open)) {
      const expected = operation.id === 'metrics' ? 200 : 403;
      expect((await call(operation, json.secret)).status, operation.id).toBe(expected);
    }
    for (const path of ['/v2/sandboxes', '/templates/aliases/base'])
      expect((await test.call('GET', path, { key: json.secret })).status, path).toBe(403);
    expect((await test.call('GET', '/metrics')).status).toBe(403);
    const { text } = await test.call('GET', '/metrics', { key: json.secret });
    for (const name of ['cay_sandbox_create_seconds_count', 'cay_command_start_seconds_sum', 'cay_webhooks'])
      expect(text).toContain(name);
    const socket = new WebSocket(`${test.server.url.replace('http', 'ws')}/v1/sandboxes/${sandbox}/exec`, [
      'cay',
      `cay.key.${json.secret}`,
    ]);
    await new Promise((resolve) => (socket.onerror = resolve));
    expect(socket.readyState).not.toBe(WebSocket.OPEN);
  });

  it('shows another project nothing of a sandbox by any route', async () => {
    for (const operation of operations.filter(({ path }) => path.includes('{id}'))) {
      for (const reference of [sandbox, 'mine']) {
        const { status, text } = await test.call(operation.method, operation.url(reference), {
          key: test.bob,
          body: operation.body,
        });
        // Removing what does not exist is done already.
        expect(status, operation.id).toBe(operation.id === 'removeSandbox' ? 204 : 404);
        expect(text).not.toContain('3000');
      }
    }
    expect((await test.call('GET', `/v1/sandboxes/${sandbox}`)).json.state).toBe('active');
  });

  it('answers its owner as the document says', async () => {
    const last = ['forgetCommand', 'stopSandbox', 'startSandbox', 'removeSandbox'];
    const ordered = [
      ...operations.filter(({ id }) => !last.includes(id)),
      ...last.map((id) => operations.find((operation) => operation.id === id)!),
    ];
    for (const operation of ordered.filter(
      (candidate) => !streams(candidate) && candidate.access === undefined,
    )) {
      const { status, json, text } = await call(operation, test.alice);
      expect(status, `${operation.id}: ${text}`).not.toBe(500);
      expect(status, `${operation.id}: ${text}`).not.toBe(401);
      // MCP has errors of its own.
      if (status >= 400) {
        if (!operation.id.startsWith('mcp'))
          expect(json.error.code, operation.id).toEqual(expect.any(String));
      } else expect(operation.statuses, operation.id).toContain(status);
    }
  });
});
