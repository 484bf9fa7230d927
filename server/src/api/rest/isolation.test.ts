import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { startTestServer, type TestServer } from '../testing/test-server.ts';

let test: TestServer;
beforeAll(async () => {
  test = await startTestServer();
});
afterAll(() => test[Symbol.asyncDispose]());

describe('two projects', () => {
  it('do not see each other’s sandboxes in listings', async () => {
    const mine = await test.create({ name: 'shared-name', labels: { team: 'a' } });
    const theirs = await test.create({ name: 'shared-name' }, test.bob);
    expect(mine.id).not.toBe(theirs.id);
    for (const path of ['/v1/sandboxes', '/v1/sandboxes?label=team=a', '/v1/sandboxes?state=active']) {
      expect((await test.call('GET', path, { key: test.bob })).text).not.toContain(mine.id);
    }
    expect((await test.call('GET', '/v1/sandboxes/shared-name', { key: test.bob })).json.id).toBe(theirs.id);
  });

  it('do not see each other’s events, also when they ask for them by id', async () => {
    const mine = await test.create();
    expect((await test.call('GET', `/v1/events?sandbox=${mine.id}`, { key: test.bob })).json.events).toEqual(
      [],
    );
    expect((await test.call('GET', '/v1/events', { key: test.bob })).text).not.toContain(mine.id);
    expect((await test.call('GET', `/v1/events?sandbox=${mine.id}`)).json.events[0].type).toBe(
      'sandbox.created',
    );
  });

  it('do not see each other’s live events', async () => {
    const abort = new AbortController();
    const response = await test.fetch('/v1/events', {
      key: test.bob,
      headers: { accept: 'application/x-ndjson' },
      signal: abort.signal,
    });
    const mine = await test.create();
    const theirs = await test.create({}, test.bob);
    let seen = '';
    for await (const chunk of response.body!) {
      seen += Buffer.from(chunk).toString();
      if (seen.includes(theirs.id)) break;
    }
    abort.abort();
    expect(seen).not.toContain(mine.id);
  });

  it('do not see each other’s keys and projects', async () => {
    const keys = (await test.call('GET', '/v1/keys')).json.keys as { name: string }[];
    expect(keys.map(({ name }) => name)).toEqual(['alice']);
    const projects = (await test.call('GET', '/v1/projects')).json.projects as { name: string }[];
    expect(projects.map(({ name }) => name)).toEqual(['alice']);
  });

  it('have idempotency keys of their own', async () => {
    const headers = { 'idempotency-key': 'the-same' };
    const mine = await test.call('POST', '/v1/sandboxes', { body: {}, headers });
    const theirs = await test.call('POST', '/v1/sandboxes', { body: {}, headers, key: test.bob });
    expect(theirs.status).toBe(201);
    expect(theirs.json.id).not.toBe(mine.json.id);
  });

  it('get webhooks of their own by the same idempotency key', async () => {
    const make = (key: string) =>
      test.call('POST', '/v1/webhooks', {
        key,
        headers: { 'idempotency-key': 'the-same-hook' },
        body: { url: 'https://example.com/hook' },
      });
    const [mine, theirs] = [await make(test.alice), await make(test.bob)];
    expect([mine.status, theirs.status]).toEqual([201, 201]);
    expect(theirs.json.webhook.id).not.toBe(mine.json.webhook.id);
    expect((await make(test.bob)).json.webhook.id).toBe(theirs.json.webhook.id);
    const shown = await test.call('GET', '/v1/webhooks', { key: test.bob });
    expect(shown.text).not.toContain(mine.json.webhook.id);
  });

  it('do not see each other’s sandboxes by a cursor of the other', async () => {
    for (let count = 0; count < 3; count++) await test.create({});
    const own = await test.create({}, test.bob);
    const { nextCursor } = (await test.call('GET', '/v1/sandboxes?limit=1')).json;
    expect(nextCursor).toEqual(expect.any(String));
    const page = await test.call('GET', `/v1/sandboxes?limit=500&cursor=${nextCursor}`, { key: test.bob });
    expect(page.status).toBe(200);
    for (const { project } of page.json.sandboxes) expect(project).toBe(own.project);
    const events = (await test.call('GET', '/v1/events?limit=1')).json.nextCursor ?? 1;
    const theirs = await test.call('GET', `/v1/events?cursor=${events}`, { key: test.bob });
    expect([200, 400]).toContain(theirs.status);
    for (const { project } of theirs.json.events ?? []) expect(project).toBe(own.project);
  });

  it('get one clear answer for filters that are very many or very long', async () => {
    await test.create({ labels: { team: 'a' } });
    const many = Array.from({ length: 3000 }, (_, at) => `label=k${at}=v`).join('&');
    const long = encodeURIComponent(`team=${'v'.repeat(64 * 1024)}`);
    const begun = performance.now();
    for (const path of [
      `/v1/sandboxes?${many}`,
      `/v1/sandboxes?${Array.from({ length: 300 }, () => 'label=team=a').join('&')}`,
      `/v1/sandboxes?label=${long}`,
      `/v2/sandboxes?metadata=${long}`,
      `/v2/sandboxes?metadata=${encodeURIComponent('a=b&'.repeat(1000))}`,
      '/v1/sandboxes?cursor=x',
      `/v1/sandboxes?cursor=${'A'.repeat(4000)}`,
    ]) {
      const { status, text } = await test.call('GET', path);
      expect(status, `${path.slice(0, 60)}: ${text.slice(0, 200)}`).toBeLessThan(500);
    }
    expect(performance.now() - begun).toBeLessThan(5_000);
  });

  it('cannot reach each other’s ports with a token of another sandbox or port', async () => {
    const mine = await test.create({ ports: [3000, 3001] });
    const theirs = await test.create({ ports: [3000] }, test.bob);
    await test.call('POST', `/v1/sandboxes/${mine.id}/commands`, { body: { argv: ['http-server', '3000'] } });
    const host = `3000-${mine.id.slice(4)}.localhost`;
    for (const token of [theirs.ports[0]!.token!, mine.ports[1]!.token!, '', 'x']) {
      const { status } = await test.call('GET', `/preview/${mine.id}/3000/`, {
        key: null,
        headers: { 'x-cay-preview-token': token },
      });
      expect(status, host).toBe(404);
    }
    expect(
      (
        await test.call('GET', `/preview/${mine.id}/3000/`, {
          key: null,
          headers: { 'x-cay-preview-token': mine.ports[0]!.token! },
        })
      ).status,
    ).toBe(200);
  });
});
