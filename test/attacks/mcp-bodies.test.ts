import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { startTarget, type Target } from './support/target.ts';
import { watchServer } from './support/watch-server.ts';

const MiB = 1024 ** 2;

describe('large bodies at /mcp', () => {
  let target: Target;
  beforeAll(async () => {
    target = await startTarget({ backend: 'memory' });
  }, 60_000);
  afterAll(() => target?.[Symbol.asyncDispose]());

  const headers = { accept: 'application/json, text/event-stream', 'content-type': 'application/json' };
  const message = (content: string) =>
    JSON.stringify({
      jsonrpc: '2.0',
      id: 1,
      method: 'tools/call',
      params: { name: 'x', arguments: { content } },
    });

  it(
    'are counted for the project and hold neither memory nor the event loop',
    { timeout: 60_000 },
    async () => {
      const body = message('x'.repeat(12 * MiB));
      const statuses: number[] = [];
      const { grownBytes, loopMs } = await watchServer(target, async () => {
        const calls = Array.from({ length: 40 }, () =>
          target.alice.call('POST', '/mcp', { body, headers }).then(({ status }) => statuses.push(status)),
        );
        await Promise.allSettled(calls);
      });
      expect(statuses).toContain(429);
      expect(statuses.filter((status) => status >= 500)).toEqual([]);
      expect(grownBytes).toBeLessThan(600 * MiB);
      expect(loopMs).toBeLessThan(1000);
    },
  );

  it('that are within the bounds are answered', { timeout: 60_000 }, async () => {
    const { status, text } = await target.bob.call('POST', '/mcp', {
      body: message('x'.repeat(MiB)),
      headers,
    });
    expect(status).toBe(200);
    expect(text).toContain('"jsonrpc"');
    const none = await target.bob.call('POST', '/mcp', { body: '{'.repeat(MiB), headers });
    expect(none.status).toBe(400);
  });
});
