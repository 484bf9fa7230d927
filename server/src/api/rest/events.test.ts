import type { CayEvent } from '@cay/sdk/protocol';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { startTestServer, type TestServer } from '../testing/test-server.ts';

let test: TestServer;
let all: CayEvent[];
beforeAll(async () => {
  test = await startTestServer();
  for (const name of ['one', 'two', 'three']) await test.create({ name });
  all = (await test.call('GET', '/v1/events')).json.events;
});
afterAll(() => test[Symbol.asyncDispose]());

const ids = async (query: string) =>
  ((await test.call('GET', `/v1/events?${query}`)).json.events as CayEvent[]).map(({ id }) => id);
const from = (index: number) => all.slice(index).map(({ id }) => id);

describe('events', () => {
  it('have the name of the key that asked, and an outcome', () => {
    const made = all.filter(({ type }) => type === 'sandbox.created');
    expect(made).toHaveLength(3);
    for (const { actor, outcome } of made)
      expect({ actor, outcome }).toEqual({ actor: 'alice', outcome: 'ok' });
  });

  it('are read from the last ones on, of a sandbox too', async () => {
    expect(await ids('tail=2')).toEqual(from(-2));
    expect(await ids('tail=0')).toEqual([]);
    expect(await ids('tail=100000')).toEqual(from(0));
    const last = (await test.call('GET', '/v1/events?tail=0')).json.last as number;
    expect(last).toBeGreaterThanOrEqual(all.at(-1)!.id);
    const sandbox = all.at(-1)!.sandbox!;
    expect(await ids(`sandbox=${sandbox}&tail=1`)).toEqual([all.at(-1)!.id]);
  });

  it('are read from a time on, whichever of the beginnings is the latest', async () => {
    const { atMs } = all[2]!;
    const first = all.findIndex((event) => event.atMs >= atMs);
    expect(await ids(`since=${new Date(atMs).toISOString()}`)).toEqual(from(first));
    expect(await ids('since=1970-01-01T00:00:00Z')).toEqual(from(0));
    expect(await ids(`since=${new Date(Date.now() + 60_000).toISOString()}`)).toEqual([]);
    expect(await ids(`since=1970-01-01T00:00:00Z&tail=1&after=${all[0]!.id}`)).toEqual(from(-1));
  });

  it('are followed from the last ones on', async () => {
    const following = new AbortController();
    const response = await test.fetch('/v1/events?tail=1', {
      headers: { accept: 'application/x-ndjson' },
      signal: following.signal,
    });
    await test.create({ name: 'four' });
    const seen: string[] = [];
    const decoder = new TextDecoder();
    for await (const chunk of response.body!) {
      seen.push(
        ...decoder
          .decode(chunk as Uint8Array)
          .split('\n')
          .filter(Boolean),
      );
      if (seen.length >= 2) break;
    }
    following.abort();
    const [old, next] = seen.map((line) => JSON.parse(line) as CayEvent);
    expect(old!.id).toBe(all.at(-1)!.id);
    expect(next).toMatchObject({ actor: 'alice' });
    expect(next!.id).toBeGreaterThan(old!.id);
  });
});
