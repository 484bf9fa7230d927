/**
 * A tenant makes so many events that those of others would have to go.
 *
 * Runs on the memory backend alone: events are written by the control plane, whatever the platform.
 */
import { createServer, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import type { AuditVerdict, CayEvent } from '@cay/sdk/protocol';
import { startTarget, type Reply, type Target } from './support/target.ts';

const KEPT = 300;

describe('a tenant floods the audit log', () => {
  let target: Target;
  let receiver: Server;
  const received: CayEvent[] = [];
  let slowly = true;

  beforeAll(async () => {
    target = await startTarget({
      backend: 'memory',
      flags: ['--keep-events', String(KEPT), '--webhook-private'],
    });
    receiver = createServer((request, response) => {
      let text = '';
      request.on('data', (data: Buffer) => (text += data.toString()));
      request.on('end', () => {
        const { event } = JSON.parse(text) as { event: CayEvent };
        // It refuses at first, so that it lags behind the whole flood.
        if (slowly) return void response.writeHead(503).end();
        received.push(event);
        response.end();
      });
    });
    await new Promise<void>((resolve) => receiver.listen(0, '127.0.0.1', resolve));
  });
  afterAll(async () => {
    receiver.closeAllConnections();
    await new Promise((resolve) => receiver.close(resolve));
    await target[Symbol.asyncDispose]();
  });

  const eventsOf = async (type?: string): Promise<CayEvent[]> => {
    const { text } = await target.admin.call('GET', `/v1/audit/export${type ? `?type=${type}` : ''}`);
    return text
      .split('\n')
      .filter((line) => line !== '')
      .map((line) => JSON.parse(line) as CayEvent);
  };

  async function flood(count: number, call: (index: number) => Promise<Reply>): Promise<void> {
    for (let at = 0; at < count; at += 50)
      await Promise.all(Array.from({ length: 50 }, (_, index) => call(at + index)));
  }

  it(
    'loses its own oldest events and nobody else’s; failed calls are thinned, and the chain still verifies',
    { timeout: 60_000 },
    async () => {
      const { alice, bob, admin } = target;
      const theirs = await bob.create({ labels: { first: 'yes' } });
      const url = `http://127.0.0.1:${(receiver.address() as AddressInfo).port}/`;
      const webhook = await bob.call('POST', '/v1/webhooks', { body: { url } });
      expect(webhook.status).toBe(201);
      await bob.call('PATCH', `/v1/sandboxes/${theirs.id}`, { body: { labels: { second: 'yes' } } });

      await flood(600, () => alice.call('POST', '/v1/sandboxes', { body: { limits: { cpus: -1 } } }));
      const failed = (await eventsOf('call.failed')).filter(({ project }) => project === alice.project);
      expect(failed.length).toBeGreaterThan(0);
      expect(failed.length).toBeLessThanOrEqual(150);

      // What succeeds is told one by one, and pushes out what is as old and the flooder's own.
      const { id } = await alice.create();
      await flood(1200, (index) =>
        alice.call('PATCH', `/v1/sandboxes/${id}`, { body: { labels: { index: String(index) } } }),
      );
      await bob.call('PATCH', `/v1/sandboxes/${theirs.id}`, { body: { labels: { third: 'yes' } } });
      await expect
        .poll(async () => (await eventsOf()).filter(({ project }) => project === alice.project).length, {
          timeout: 20_000,
        })
        .toBeLessThanOrEqual(KEPT + 1000);

      const left = (await eventsOf()).filter(({ project }) => project === bob.project);
      expect(left.some(({ type, sandbox }) => type === 'sandbox.created' && sandbox === theirs.id)).toBe(
        true,
      );
      const verdict = (await admin.call('GET', '/v1/audit/verify')).json as AuditVerdict;
      expect(verdict).toMatchObject({ ok: true, sealed: true });

      // A webhook that lagged behind all of it loses nothing.
      slowly = false;
      await bob.call('POST', `/v1/webhooks/${webhook.json.webhook.id}/test`);
      const missing = () => {
        const there = new Set(received.map((event) => event.id));
        const created = left.find(({ type }) => type === 'webhook.created')!.id;
        return left.filter((event) => event.id > created && !there.has(event.id)).map(({ type }) => type);
      };
      await expect.poll(missing, { timeout: 30_000, interval: 500 }).toEqual([]);
      await target.requireAlive();
    },
  );
});
