import { connect } from 'node:net';
import { setTimeout as sleep } from 'node:timers/promises';
import { afterAll, beforeAll, beforeEach, expect, it } from 'vitest';
import { startTestServer, type TestServer } from '../../server/src/api/testing/test-server.ts';
import { onEachPlatform } from './support/platforms.ts';

const LIMITS = { calls: 4, streams: 4, helpers: 1, bytes: 1024 * 1024 };

onEachPlatform('a caller who sends and goes away before there is an answer', (platform) => {
  let test: TestServer;
  let dispose: () => Promise<void>;
  let id: string;
  beforeAll(async () => {
    const opened = await platform.open();
    ({ dispose } = opened);
    test = await startTestServer({ backend: opened.backend, budgets: LIMITS });
  }, 120_000);
  afterAll(async () => {
    await test?.[Symbol.asyncDispose]();
    await dispose?.();
  }, 60_000);
  beforeEach(async () => {
    ({ id } = await test.create());
    return async () => {
      await expect
        .poll(async () => (await test.call('DELETE', `/v1/sandboxes/${id}`)).status, { timeout: 20_000 })
        .toBeOneOf([204, 404]);
    };
  });

  /** Sends a whole request and hangs up, at once or a little later. */
  async function abandon(method: string, path: string, body?: unknown, afterMs = 20): Promise<void> {
    const { hostname, port } = new URL(test.server.url);
    const text = body === undefined ? '' : JSON.stringify(body);
    const head = `${method} ${path} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer ${test.alice}\r\nContent-Length: ${text.length}\r\n`;
    const socket = connect(Number(port), hostname);
    const closed = new Promise<void>((resolve) => socket.once('close', () => resolve()));
    socket.on('error', () => {});
    socket.write(
      `${head}Content-Type: application/json\r\n\r\n${text}`,
      () => void setTimeout(() => socket.destroy(), afterMs),
    );
    socket.resume();
    await closed;
  }

  /** A pause that waits for a command keeps newcomers in front of the sandbox for as long. */
  async function closeGate(): Promise<AbortController> {
    const running = new AbortController();
    test
      .fetch(`/v1/sandboxes/${id}/exec`, {
        method: 'POST',
        body: JSON.stringify({ argv: ['sleep', '30'], timeoutMs: 30_000 }),
        signal: running.signal,
      })
      .catch(() => {});
    await sleep(100);
    test
      .call('POST', `/v1/sandboxes/${id}/pause`, { body: { as: 'frozen', waitMs: 20_000 } })
      .catch(() => {});
    await sleep(100);
    return running;
  }

  const exec = () => test.call('POST', `/v1/sandboxes/${id}/exec`, { body: { argv: ['true'] } });

  it('still counts in the budget of its project while its call waits, and no longer', async () => {
    const running = await closeGate();
    // One stream is the command that runs.
    for (let sent = 1; sent < LIMITS.streams; sent++)
      await abandon('POST', `/v1/sandboxes/${id}/exec`, { argv: ['true'] });
    const refused = await exec();
    expect([refused.status, refused.json.error.details.budget]).toEqual([429, 'streams']);
    running.abort();
    await expect.poll(async () => (await exec()).status, { timeout: 10_000 }).toBe(200);
  });

  it('does so over WebSockets as well', async () => {
    const running = await closeGate();
    for (let sent = 1; sent < LIMITS.streams; sent++) {
      const url = `${test.server.url.replace('http', 'ws')}/v1/sandboxes/${id}/exec`;
      const socket = new WebSocket(url, ['cay', `cay.key.${test.alice}`]);
      await new Promise((resolve) => socket.addEventListener('open', resolve, { once: true }));
      socket.send(JSON.stringify({ exec: { argv: ['true'] } }));
      await sleep(20);
      socket.close();
    }
    await sleep(50);
    expect((await exec()).status).toBe(429);
    running.abort();
    await expect.poll(async () => (await exec()).status, { timeout: 10_000 }).toBe(200);
  });

  it('leaves nothing of the budget behind, whatever was asked for', { timeout: 60_000 }, async () => {
    const { abilities, notes } = (await test.call('GET', '/v1/capabilities')).json;
    if (!abilities.snapshots) console.info(`${platform.name}: no diffs and archives: ${notes.snapshots}`);
    // Where there are none it is asked for all the same.
    const { json: snapshot } = await test.call('POST', `/v1/sandboxes/${id}/snapshots`, { body: {} });
    expect(snapshot.id === undefined).toBe(!abilities.snapshots);
    const cases: [string, string, unknown?][] = [
      ['GET', '/v1/sandboxes'],
      ['GET', `/v1/sandboxes/${id}/files?path=/etc/passwd`],
      ['GET', `/v1/sandboxes/${id}/files/list?path=/&depth=9`],
      ['GET', `/v1/sandboxes/${id}/diff?from=${snapshot.id}&to=now&format=patch`],
      ['GET', `/v1/snapshots/${snapshot.id}/archive`],
      ['GET', '/v1/events?follow=true'],
      ['POST', `/v1/sandboxes/${id}/exec`, { argv: ['sleep', '1'] }],
      ['POST', `/v1/sandboxes/${id}/turns`, { waitMs: 100 }],
      ['POST', `/v1/sandboxes/${id}/pause`, { waitMs: 100 }],
      ['POST', `/v1/sandboxes/${id}/exec`, 'no object'],
      ['POST', '/v1/snapshots', { not: 'an archive' }],
      ['PUT', `/v1/sandboxes/${id}/files?path=/tmp/x`, 'x'],
    ];
    for (let round = 0; round < 40; round++) {
      await Promise.all(
        cases.map(([method, path, body], index) => abandon(method, path, body, (round * 7 + index * 3) % 25)),
      );
    }
    // As many at once as there may be of each kind.
    const at = (count: number, path: string) =>
      Promise.all(Array.from({ length: count }, () => test.call('GET', path)));
    const full = async () => {
      const replies = [
        ...(await at(LIMITS.calls, '/v1/sandboxes')),
        ...(await at(3, `/v1/sandboxes/${id}/diff?from=${snapshot.id}&to=${snapshot.id}`)),
        ...(await Promise.all(Array.from({ length: LIMITS.streams }, exec))),
      ];
      return replies.map(({ status }) => status).filter((status) => status === 429).length;
    };
    await expect.poll(full, { timeout: 20_000, interval: 500 }).toBe(0);
  });
});
