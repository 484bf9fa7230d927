import { connect } from 'node:net';
import { describe, expect, it } from 'vitest';
import { openPolicy } from '../../policy/policy.ts';
import { startTestServer } from '../testing/test-server.ts';

describe('quotas', () => {
  it('bound what a project may have', async () => {
    // The policy allows unlimited, so that the quota has to refuse it.
    await using test = await startTestServer({ policy: openPolicy({ maxima: { memoryBytes: null } }) });
    const quota = (values: object) =>
      test.call('PATCH', '/v1/projects/alice', { key: test.admin, body: { quota: values } });
    expect((await quota({ sandboxes: 1 })).json.quota).toMatchObject({ sandboxes: 1, cpus: null });
    const first = await test.create();
    const refused = await test.call('POST', '/v1/sandboxes', { body: {} });
    expect([refused.status, refused.json.error.code]).toEqual([429, 'resource_exhausted']);
    await test.create({}, test.bob);
    await test.call('DELETE', `/v1/sandboxes/${first.id}`);
    await quota({ sandboxes: null, memoryBytes: 1024 ** 3 });
    expect(
      (await test.call('POST', '/v1/sandboxes', { body: { limits: { memoryBytes: 2 * 1024 ** 3 } } })).status,
    ).toBe(429);
    expect(
      (await test.call('POST', '/v1/sandboxes', { body: { limits: { memoryBytes: null } } })).status,
    ).toBe(429);
    await test.create({ limits: { memoryBytes: 1024 ** 3 } });
  });

  it('hold when many ask at once', async () => {
    await using test = await startTestServer();
    await test.call('PATCH', '/v1/projects/alice', { key: test.admin, body: { quota: { sandboxes: 3 } } });
    const replies = await Promise.all(
      Array.from({ length: 10 }, () => test.call('POST', '/v1/sandboxes', { body: {} })),
    );
    expect(replies.filter(({ status }) => status === 201)).toHaveLength(3);
  });
});

describe('the rate limit', () => {
  it('refuses a key that is used too often, says when to retry, and leaves others alone', async () => {
    await using test = await startTestServer({ rateLimit: { perSecond: 0.5, burst: 5 } });
    const statuses: number[] = [];
    for (let i = 0; i < 6; i++) statuses.push((await test.call('GET', '/v1/version')).status);
    expect(statuses).toEqual([200, 200, 200, 200, 200, 429]);
    expect((await test.call('GET', '/v1/version')).headers.get('retry-after')).toBe('2');
    expect((await test.call('GET', '/v1/version', { key: test.bob })).status).toBe(200);
    expect((await test.call('GET', '/healthz', { key: null })).status).toBe(200);
  });
});

describe('idempotency', () => {
  it('makes one sandbox for one key, also when both calls come at once', async () => {
    await using test = await startTestServer();
    const headers = { 'idempotency-key': 'once' };
    const replies = await Promise.all(
      Array.from({ length: 5 }, () => test.call('POST', '/v1/sandboxes', { body: { name: 'one' }, headers })),
    );
    expect(new Set(replies.map(({ json }) => json.id)).size).toBe(1);
    expect(replies.map(({ status }) => String(status)).toSorted()).toEqual([
      '200',
      '200',
      '200',
      '200',
      '201',
    ]);
    const other = await test.call('POST', '/v1/sandboxes', { body: { name: 'two' }, headers });
    expect([other.status, other.json.error.code]).toEqual([409, 'conflict']);
    expect(
      (await test.call('POST', '/v1/sandboxes', { body: {}, headers: { 'idempotency-key': 'x y' } })).status,
    ).toBe(400);
  });

  it('gets or creates by name, and starts what was stopped', async () => {
    await using test = await startTestServer();
    const body = { name: 'mine', getOrCreate: true };
    const replies = await Promise.all(
      Array.from({ length: 4 }, () => test.call('POST', '/v1/sandboxes', { body })),
    );
    expect(new Set(replies.map(({ json }) => json.id)).size).toBe(1);
    await test.call('POST', '/v1/sandboxes/mine/stop');
    expect((await test.call('POST', '/v1/sandboxes', { body })).json.state).toBe('active');
    expect((await test.call('POST', '/v1/sandboxes', { body: { name: 'mine' } })).json.error.code).toBe(
      'already_exists',
    );
    expect((await test.call('POST', '/v1/sandboxes', { body: { getOrCreate: true } })).status).toBe(400);
  });
});

describe('browsers', () => {
  it('are kept out unless their origin is allowed', async () => {
    await using closed = await startTestServer();
    const headers = { origin: 'https://app.example.com' };
    expect(
      (await closed.call('GET', '/v1/version', { headers })).headers.get('access-control-allow-origin'),
    ).toBeNull();
    await using open = await startTestServer({ corsOrigins: ['https://app.example.com'] });
    expect(
      (await open.call('GET', '/v1/version', { headers })).headers.get('access-control-allow-origin'),
    ).toBe('https://app.example.com');
    expect(
      (
        await open.call('GET', '/v1/version', { headers: { origin: 'https://evil.example.com' } })
      ).headers.get('access-control-allow-origin'),
    ).toBeNull();
    const preflight = await open.call('OPTIONS', '/v1/sandboxes', {
      key: null,
      headers: { ...headers, 'access-control-request-method': 'POST' },
    });
    expect([preflight.status, preflight.headers.get('access-control-allow-headers')]).toEqual([
      204,
      expect.stringContaining('Authorization'),
    ]);
  });

  it('get security headers', async () => {
    await using test = await startTestServer();
    const { headers } = await test.call('GET', '/v1/version', { headers: { 'x-request-id': 'mine-1' } });
    expect(headers.get('x-content-type-options')).toBe('nosniff');
    expect(headers.get('x-request-id')).toBe('mine-1');
    expect(
      (await test.call('GET', '/v1/version', { headers: { 'x-request-id': 'a b' } })).headers.get(
        'x-request-id',
      ),
    ).toMatch(/^[0-9a-f-]{36}$/);
  });
});

describe('raw HTTP', () => {
  it('that is malformed or too large is refused without harm', async () => {
    await using test = await startTestServer();
    const { hostname, port } = new URL(test.server.url);
    for (const bytes of [
      'nonsense\r\n\r\n',
      `GET /${'x'.repeat(100_000)} HTTP/1.1\r\nHost: x\r\n\r\n`,
      'GET / HTTP/1.1\r\nHost: a b\r\n\r\n',
      'GET http://%zz HTTP/1.1\r\nHost: x\r\n\r\n',
    ]) {
      const socket = connect(Number(port), hostname);
      socket.end(bytes);
      let text = '';
      // The kernel resets the connection if the server closes it with unread data, sometimes before the
      // client has read the answer.
      await (async () => {
        for await (const chunk of socket) text += String(chunk);
      })().catch((error: NodeJS.ErrnoException) => expect(error.code).toBe('ECONNRESET'));
      expect(text).toMatch(/^$|^HTTP\/1\.1 4\d\d /);
    }
    expect((await test.call('GET', '/healthz')).status).toBe(200);
  });
});

describe('events and metrics', () => {
  it('resume where a reader left off', async () => {
    await using test = await startTestServer();
    const { id } = await test.create();
    const [first] = (await test.call('GET', `/v1/events?sandbox=${id}`)).json.events as { id: number }[];
    await test.call('PATCH', `/v1/sandboxes/${id}`, { body: { labels: { a: '1' } } });
    const abort = new AbortController();
    const response = await test.fetch('/v1/events', {
      headers: { accept: 'text/event-stream', 'last-event-id': String(first!.id) },
      signal: abort.signal,
    });
    let seen = '';
    for await (const chunk of response.body!) {
      seen += Buffer.from(chunk).toString();
      if (seen.includes('\n\n')) break;
    }
    abort.abort();
    expect(seen).toContain(`id: ${first!.id + 1}\n`);
    expect(seen).toContain('sandbox.updated');
    expect(seen).not.toContain('sandbox.created');
  });

  it('count requests by route and sandboxes by state', async () => {
    await using test = await startTestServer();
    const { id } = await test.create();
    await test.call('GET', `/v1/sandboxes/${id}`);
    const { text } = await test.call('GET', '/metrics', { key: test.admin });
    expect(text).toContain('cay_http_requests_total{route="getSandbox",status="2xx"} 1');
    expect(text).toContain('cay_sandboxes{state="active"} 1');
    expect(text).not.toContain(id);
    await using open = await startTestServer({ openMetrics: true });
    expect((await open.call('GET', '/metrics', { key: null })).status).toBe(200);
  });

  it('note keys and projects', async () => {
    await using test = await startTestServer();
    const created = await test.call('POST', '/v1/keys', {
      key: test.admin,
      body: { name: 'second', role: 'admin' },
    });
    expect(created.json.secret).toMatch(/^e2b_[0-9a-f]{40}$/);
    const path = `/v1/keys/${created.json.key.id}`;
    expect((await test.call('DELETE', path, { key: test.admin })).status).toBe(204);
    expect((await test.call('GET', '/v1/version', { key: created.json.secret })).status).toBe(401);
    const { text } = await test.call('GET', '/v1/events', { key: test.admin });
    expect(text).toContain('key.created');
    expect(text).toContain('key.revoked');
    expect(text).not.toContain(created.json.secret);
    const [mine] = (
      (await test.call('GET', '/v1/keys', { key: test.admin })).json.keys as { id: string; role: string }[]
    ).filter(({ role }) => role === 'admin');
    expect((await test.call('DELETE', `/v1/keys/${mine!.id}`, { key: test.admin })).status).toBe(412);
  });
});
