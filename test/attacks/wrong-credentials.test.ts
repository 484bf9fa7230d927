/** A client tries wrong credentials of E2B's clients, as fast as its network lets it. */
import { createHash } from 'node:crypto';
import { Agent, request as httpRequest } from 'node:http';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { startTarget, type Target } from './support/target.ts';

/** Each is a network of its own to the server. */
const [ATTACKER, CLIENT] = ['127.0.0.1', '127.0.0.2'];
/** At most so many are sent until enough of them are refused: a slow machine lets some more through. */
const FLOOD = 10_000;
const ENOUGH = 200;

let target: Target;
let sandbox: string;
let token: string;
const agents = new Map<string, Agent>();

beforeAll(async () => {
  target = await startTarget({ backend: 'memory' });
  const made = await target.alice.call('POST', '/sandboxes', { body: { templateID: 'base', timeout: 300 } });
  ({ sandboxID: sandbox, envdAccessToken: token } = made.json as {
    sandboxID: string;
    envdAccessToken: string;
  });
});
afterAll(async () => {
  for (const agent of agents.values()) agent.destroy();
  await target[Symbol.asyncDispose]();
});

interface Asked {
  path: string;
  headers?: Record<string, string>;
  method?: string;
}

function ask(from: string, { path, headers = {}, method = 'GET' }: Asked) {
  if (!agents.has(from)) agents.set(from, new Agent({ keepAlive: true, maxSockets: 32, localAddress: from }));
  return new Promise<{ status: number; ms: number; retryAfter: string | undefined }>((resolve, reject) => {
    const began = performance.now();
    const { hostname, port } = new URL(target.url);
    const options = { hostname, port, path, method, headers, agent: agents.get(from)! };
    httpRequest(options, (response) => {
      const { statusCode: status = 0, headers: answered } = response;
      response
        .resume()
        .once('end', () =>
          resolve({ status, ms: performance.now() - began, retryAfter: answered['retry-after'] }),
        )
        .once('error', reject);
    })
      .once('error', reject)
      .end();
  });
}

const inside = () => ({ 'e2b-sandbox-id': sandbox, 'e2b-sandbox-port': '49983' });
const signature = (by: string) =>
  `v1_${createHash('sha256').update(`/etc/passwd:read:root:${by}`).digest('base64').replace(/=+$/, '')}`;
const signed = (by: string) =>
  `/files?path=${encodeURIComponent('/etc/passwd')}&username=root&signature=${encodeURIComponent(signature(by))}`;

const wrong: Record<string, () => Asked> = {
  'an API key': () => ({ path: '/v2/sandboxes', headers: { 'x-api-key': `e2b_${'0'.repeat(40)}` } }),
  'an access token': () => ({
    path: '/envs',
    headers: { ...inside(), 'x-access-token': `${sandbox}_${'0'.repeat(64)}` },
  }),
  'an access token of no sandbox': () => ({
    path: '/envs',
    headers: { 'e2b-sandbox-id': 'a'.repeat(20), 'x-access-token': `${'a'.repeat(20)}_${'0'.repeat(64)}` },
  }),
  'an access token that alone names a sandbox': () => ({
    path: '/files?path=/etc/passwd',
    headers: { 'x-access-token': `${sandbox}_${'0'.repeat(64)}` },
  }),
  'a signature': () => ({ path: signed('wrong'), headers: inside() }),
  'no credential': () => ({ path: '/envs', headers: inside() }),
  'an upload link': () => ({
    path: `/templates/mine/files/${'a'.repeat(64)}?project=p&expires=99999999999999&signature=${'A'.repeat(43)}`,
    method: 'PUT',
  }),
};

const right = {
  'the access token': () => ({ path: '/envs', headers: { ...inside(), 'x-access-token': token } }),
  'the signature': () => ({ path: signed(token), headers: inside() }),
  'the key': () => ({ path: '/v2/sandboxes', headers: { 'x-api-key': target.alice.key } }),
};

describe('a flood of wrong credentials', () => {
  it.each(Object.keys(wrong))('is answered 429 before long (%s)', async (name) => {
    // One bucket for all of them: earlier cases may have emptied it, and it is full again in some seconds.
    const statuses = new Map<number, number>();
    let told: string | undefined;
    for (let sent = 0; sent < FLOOD && (statuses.get(429) ?? 0) < ENOUGH; sent += 100) {
      const replies = await Promise.all(Array.from({ length: 100 }, () => ask(ATTACKER!, wrong[name]!())));
      for (const { status, retryAfter } of replies) {
        statuses.set(status, (statuses.get(status) ?? 0) + 1);
        if (status === 429) told = retryAfter;
      }
    }
    expect(statuses.get(429) ?? 0, JSON.stringify([...statuses])).toBeGreaterThanOrEqual(ENOUGH);
    expect(Number(told)).toBeGreaterThanOrEqual(1);
    for (const [label, call] of Object.entries(right)) {
      // A right one is never locked out, not even from the same network.
      expect((await ask(ATTACKER!, call())).status, label).toBe(200);
      expect((await ask(CLIENT!, call())).status, label).toBe(200);
    }
    // Wrong credentials from other addresses are refused as wrong, not with 429.
    expect((await ask(CLIENT!, wrong[name]!())).status).not.toBe(429);
  });

  it('does not slow down the client of another network', async () => {
    let going = true;
    const flood = Array.from({ length: 32 }, async () => {
      while (going) await ask(ATTACKER!, wrong['an access token']!());
    });
    const times: number[] = [];
    try {
      for (let asked = 0; asked < 200; asked++) {
        const { status, ms } = await ask(CLIENT!, right['the access token']());
        expect(status).toBe(200);
        times.push(ms);
      }
    } finally {
      going = false;
      await Promise.all(flood);
    }
    const sorted = times.toSorted((a, b) => a - b);
    expect(sorted[Math.floor(sorted.length * 0.95)]).toBeLessThan(200);
  });

  it('leaves the audit as short as it was', async () => {
    const { json } = await target.alice.call('GET', '/v1/events?limit=1000');
    const refused = (json.events as { type: string }[]).filter(({ type }) => type === 'token.refused');
    expect(refused.length).toBeLessThanOrEqual(10);
    await target.requireAlive();
  });
});
