import { existsSync, readdirSync, statSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, it, vi } from 'vitest';
import { onEachPlatform } from './support/platforms.ts';
import type { Target } from './support/target.ts';

const MiB = 1024 ** 2;
const CALLS = 60;

onEachPlatform('results of tools', (platform) => {
  let target: Target;
  beforeAll(async () => {
    target = await platform.start({ flags: ['--default-quota', 'log-bytes=1m'] });
  }, 180_000);
  afterAll(() => target?.[Symbol.asyncDispose](), 60_000);

  const folder = (id: string) => join(target.dataDir, 'control/tool-calls', id);
  const bytesOf = (id: string) =>
    readdirSync(folder(id)).reduce((sum, name) => sum + statSync(join(folder(id), name)).size, 0);

  it(
    'take no more disk than the quota for logs, and go with their sandbox',
    { timeout: 120_000 },
    async () => {
      const { id } = await target.alice.create();
      const call = (toolCallId: string, name: string, input: unknown) =>
        target.alice.call('POST', `/v1/sandboxes/${id}/tools/${name}`, { body: { toolCallId, input } });
      const command = { command: 'head -c 29000 /dev/zero | tr "\\0" x; echo done >> /tmp/times' };
      for (let index = 0; index < CALLS; index++) {
        const { status, text } = await call(`call-${index}`, 'bash', command);
        if (status !== 200) throw new Error(text);
      }
      await vi.waitFor(() => expect(bytesOf(id)).toBeLessThanOrEqual(MiB + 64 * 1024), 10_000);
      const { json: usage } = await target.alice.call('GET', `/v1/projects/${target.alice.project}/usage`);
      expect(usage.logBytes.used).toBeGreaterThan(MiB / 2);
      expect(usage.logBytes.used).toBeLessThanOrEqual(MiB + 64 * 1024);
      // What was given up is not done again.
      const { json: first } = await call('call-0', 'bash', command);
      expect(first).toMatchObject({ repeated: true, error: { details: { reason: 'result_dropped' } } });
      const { json: last } = await call(`call-${CALLS - 1}`, 'bash', command);
      expect(last).toMatchObject({ repeated: true, isError: false });
      const { stdout } = await target.alice.exec(id, ['wc', '-l', '/tmp/times']);
      expect(stdout.trim()).toBe(`${CALLS} /tmp/times`);

      expect(
        (await target.bob.call('GET', `/v1/projects/${target.bob.project}/usage`)).json.logBytes.used,
      ).toBe(0);
      await target.alice.call('DELETE', `/v1/sandboxes/${id}`);
      await vi.waitFor(() => expect(existsSync(folder(id))).toBe(false), 10_000);
    },
  );
});
