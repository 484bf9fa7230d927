import { createHmac } from 'node:crypto';
import { mkdtempSync, rmSync } from 'node:fs';
import { createServer, type Server, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import type { CayEvent, CreatedWebhook, Delivery, Webhook } from '@cay/sdk/protocol';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { startTestServer, type TestServer } from '../testing/test-server.ts';

interface Received {
  event: CayEvent;
  headers: Record<string, string | string[] | undefined>;
  body: string;
}

/** A receiver whose answers the test chooses. */
class Receiver {
  readonly received: Received[] = [];
  answer: (response: ServerResponse, received: Received) => void = (response) =>
    response.writeHead(204).end();
  #server: Server | undefined;
  port = 0;

  async start(): Promise<void> {
    this.#server = createServer((request, response) => {
      let body = '';
      request.on('data', (data: Buffer) => (body += data.toString()));
      request.on('end', () => {
        const one = {
          event: (JSON.parse(body) as { event: CayEvent }).event,
          headers: request.headers,
          body,
        };
        this.received.push(one);
        this.answer(response, one);
      });
    });
    await new Promise<void>((resolve) => this.#server!.listen(this.port, '127.0.0.1', resolve));
    this.port = (this.#server.address() as AddressInfo).port;
  }

  /** Closes the receiver as `kill -9` does: connections end and nothing listens. */
  async kill(): Promise<void> {
    const server = this.#server;
    this.#server = undefined;
    server?.closeAllConnections();
    await new Promise((resolve) => (server ? server.close(resolve) : resolve(undefined)));
  }

  get url(): string {
    return `http://127.0.0.1:${this.port}/hook`;
  }
}

// Long enough for a busy machine: an answer that comes too late is a failure, and what was taken is sent
// again.
const pace = { timeoutMs: 10_000, firstMs: 5, longestMs: 40, giveUpMs: 60_000 };
let test: TestServer;
let receiver: Receiver;

beforeEach(async () => {
  test = await startTestServer({ webhooks: { allowPrivate: true, pace } });
  receiver = new Receiver();
  await receiver.start();
});
afterEach(async () => {
  await receiver.kill();
  await test[Symbol.asyncDispose]();
});

async function add(types: string[] = []): Promise<CreatedWebhook> {
  const { status, json } = await test.call('POST', '/v1/webhooks', { body: { url: receiver.url, types } });
  expect(status).toBe(201);
  return json as CreatedWebhook;
}

const list = async () => (await test.call('GET', '/v1/webhooks')).json.webhooks as Webhook[];
const eventsOf = async () => (await test.call('GET', '/v1/events')).json.events as CayEvent[];

async function until(condition: () => boolean | Promise<boolean>): Promise<void> {
  for (const deadline = Date.now() + 10_000; !(await condition());) {
    if (Date.now() > deadline) throw new Error('it has not happened');
    await sleep(5);
  }
}

async function makeEvents(count: number): Promise<void> {
  for (let i = 0; i < count; i++) await test.call('POST', '/v1/sandboxes', { body: {} });
}

describe('a webhook', () => {
  it('gets its events, signed, in order', async () => {
    const { webhook, secret } = await add(['sandbox.*']);
    const { id } = await test.create();
    await test.call('POST', `/v1/sandboxes/${id}/exec`, { body: { argv: ['true'] } });
    await test.call('DELETE', `/v1/sandboxes/${id}`);
    await until(() => receiver.received.length >= 2);
    expect(receiver.received.map(({ event }) => event.type)).toEqual(['sandbox.created', 'sandbox.removed']);
    const { headers, body, event } = receiver.received[0]!;
    const { t, v1 } = Object.fromEntries(
      (headers['cay-signature'] as string).split(',').map((part) => part.split('=')),
    ) as Record<string, string>;
    expect(v1).toBe(createHmac('sha256', secret).update(`${t}.${body}`).digest('hex'));
    expect(Math.abs(Date.now() / 1000 - Number(t))).toBeLessThan(60);
    expect(headers).toMatchObject({
      'cay-webhook': webhook.id,
      'cay-event': String(event.id),
      'content-type': 'application/json',
    });
    await until(async () => (await list())[0]!.deliveredTo >= receiver.received[1]!.event.id);
    expect(JSON.stringify(await list())).not.toContain(secret);
    expect(JSON.stringify(await eventsOf())).not.toContain(secret);
  });

  it('is tried again until it takes an event, and keeps the order', async () => {
    await test[Symbol.asyncDispose]();
    test = await startTestServer({ webhooks: { allowPrivate: true, pace: { ...pace, timeoutMs: 300 } } });
    let failures = 0;
    receiver.answer = (response, { event }) => {
      // Every third attempt at an event succeeds, one is a redirect, one is never answered.
      const attempt = receiver.received.filter((one) => one.event.id === event.id).length;
      if (attempt === 1 && event.id % 2 === 0) return void failures++;
      if (attempt < 3) response.writeHead(attempt === 1 ? 302 : 500, { location: 'http://127.0.0.1:1/' });
      response.end();
    };
    await add(['sandbox.created']);
    await makeEvents(4);
    const ids = (await eventsOf()).filter(({ type }) => type === 'sandbox.created').map(({ id }) => id);
    await until(async () => (await list())[0]!.deliveredTo >= ids.at(-1)!);
    expect(failures).toBeGreaterThan(0);
    const order = receiver.received.map(({ event }) => event.id);
    expect(order).toEqual(order.toSorted((one, other) => one - other));
    expect([...new Set(order)]).toEqual(ids);
    // On a slow machine an answer may come too late, and is asked for again.
    expect(order.length).toBeGreaterThanOrEqual(ids.length * 3);
    expect((await list())[0]).toMatchObject({ attempts: 0, failingSinceMs: null, lastError: null });
  });

  it('goes on after the receiver was killed and came back', async () => {
    await add(['sandbox.created']);
    await makeEvents(1);
    await until(() => receiver.received.length === 1);
    await receiver.kill();
    await makeEvents(3);
    await until(async () => (await list())[0]!.attempts > 2);
    expect((await list())[0]!.lastError).toBe('nothing listens there');
    await receiver.start();
    await until(() => receiver.received.length === 4);
  });

  it('does not hold up others, nor those of another project', async () => {
    receiver.answer = () => {};
    await add();
    const other = new Receiver();
    await other.start();
    await test.call('POST', '/v1/webhooks', { body: { url: other.url } });
    await test.create({}, test.bob);
    await makeEvents(2);
    await until(() => other.received.filter(({ event }) => event.type === 'sandbox.created').length === 2);
    expect(new Set(other.received.map(({ event }) => event.project)).size).toBe(1);
    expect((await test.call('GET', '/v1/webhooks', { key: test.bob })).json.webhooks).toEqual([]);
    const { id } = (await list())[0]!;
    expect((await test.call('POST', `/v1/webhooks/${id}/test`, { key: test.bob })).status).toBe(404);
    await test.call('DELETE', `/v1/webhooks/${id}`, { key: test.bob });
    expect(await list()).toHaveLength(2);
    await test.call('DELETE', `/v1/webhooks/${id}`);
    expect(await list()).toHaveLength(1);
    await other.kill();
  });

  it('is disabled by a receiver that is gone, with an event, and enabled by a test that succeeds', async () => {
    receiver.answer = (response) => response.writeHead(410).end();
    const { webhook } = await add(['sandbox.created']);
    await makeEvents(2);
    await until(async () => (await list())[0]!.disabledAtMs !== null);
    expect((await eventsOf()).find(({ type }) => type === 'webhook.disabled')?.data).toMatchObject({
      webhook: webhook.id,
      error: 'It answered 410',
    });
    const failed = (await test.call('POST', `/v1/webhooks/${webhook.id}/test`)).json as Delivery;
    expect(failed).toMatchObject({ ok: false, status: 410 });
    receiver.answer = (response) => response.end();
    receiver.received.length = 0;
    expect((await test.call('POST', `/v1/webhooks/${webhook.id}/test`)).json).toMatchObject({
      ok: true,
      status: 200,
    });
    await until(() => receiver.received.length === 3);
    expect(receiver.received.map(({ event }) => event.type)).toEqual([
      'webhook.test',
      'sandbox.created',
      'sandbox.created',
    ]);
  });

  it('is made once for one idempotency key', async () => {
    const make = () =>
      test.call('POST', '/v1/webhooks', {
        body: { url: receiver.url },
        headers: { 'idempotency-key': 'hook' },
      });
    const [first, second] = [await make(), await make()];
    expect([first.status, second.status]).toEqual([201, 200]);
    expect(second.json.secret).toBe(first.json.secret);
    expect(await list()).toHaveLength(1);
  });
});

describe('a webhook whose receiver does not answer for long', () => {
  it('is given up', async () => {
    await using impatient = await startTestServer({
      webhooks: { allowPrivate: true, pace: { ...pace, giveUpMs: 100 } },
    });
    await impatient.call('POST', '/v1/webhooks', { body: { url: 'http://127.0.0.1:9/' } });
    await until(
      async () =>
        ((await impatient.call('GET', '/v1/webhooks')).json.webhooks as Webhook[])[0]!.disabledAtMs !== null,
    );
  });
});

describe('the address of a webhook', () => {
  it('is never of the link, and of private networks only where the operator allows it', async () => {
    await using strict = await startTestServer();
    const status = async (server: TestServer, url: string) =>
      (await server.call('POST', '/v1/webhooks', { body: { url } })).status;
    for (const url of [
      'http://169.254.169.254/latest',
      'http://[fe80::1]/',
      'http://0.0.0.0/',
      'http://[::ffff:a9fe:a9fe]/',
      'http://2852039166/',
    ]) {
      expect(await status(test, url), url).toBe(403);
      expect(await status(strict, url), url).toBe(403);
    }
    for (const url of ['http://127.0.0.1:1/', 'http://10.0.0.1/', 'http://[::1]:1/', 'http://0x7f.1/']) {
      expect(await status(strict, url), url).toBe(403);
      expect(await status(test, url), url).toBe(201);
    }
    for (const url of [
      'ftp://example.com/',
      'http://user:pass@example.com/',
      'nonsense',
      'file:///etc/passwd',
    ])
      expect(await status(test, url), url).toBe(400);
  });

  it('is looked at again when its name is resolved', async () => {
    await using strict = await startTestServer();
    const url = `http://localhost:${receiver.port}/`;
    const { json } = await strict.call('POST', '/v1/webhooks', { body: { url } });
    const delivery = (await strict.call('POST', `/v1/webhooks/${json.webhook.id}/test`)).json as Delivery;
    expect(delivery).toMatchObject({
      ok: false,
      status: null,
      error: expect.stringContaining('webhooks may not reach its address'),
    });
    expect(receiver.received).toEqual([]);
  });
});

describe('webhooks of a server that ends', () => {
  it('go on where they were with the next one', async () => {
    const { serve } = await import('../../serve.ts');
    const { memoryBackend } = await import('../../backends/memory/memory.ts');
    const { pino } = await import('pino');
    const dataDir = mkdtempSync(join(tmpdir(), 'cay-webhooks-'));
    const open = () =>
      serve({
        backend: memoryBackend(),
        dataDir,
        port: 0,
        log: pino({ level: 'silent' }),
        webhooks: { allowPrivate: true, pace },
      });
    let server = await open();
    const key = server.adminKey!;
    const call = (path: string, body: unknown) =>
      fetch(server.url + path, {
        method: 'POST',
        headers: { authorization: `Bearer ${key}` },
        body: JSON.stringify(body),
      });
    await call('/v1/webhooks', { url: receiver.url, types: ['key.created'] });
    const port = receiver.port;
    await receiver.kill();
    for (let i = 0; i < 5; i++) await call('/v1/keys', { name: `p${i}` });
    await server.close();
    server = await open();
    receiver.port = port;
    await receiver.start();
    await until(() => receiver.received.length >= 5);
    expect(receiver.received.map(({ event }) => event.data['name'])).toEqual(['p0', 'p1', 'p2', 'p3', 'p4']);
    await server.close();
    rmSync(dataDir, { recursive: true, force: true });
  });
});
