import { mkdtemp, rm } from 'node:fs/promises';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { whyNoLocal } from '../../../../test/support/local-platform.ts';
import { openLocal } from '../local/open-local.ts';
import { probedBackend } from './probed-backend.ts';

const reason = whyNoLocal();
describe.skipIf(reason !== undefined)(`probes of this machine's runtimes ${reason ?? ''}`, () => {
  it('see everything work that is wired, once, and leave nothing behind', { timeout: 180_000 }, async () => {
    const dir = await mkdtemp('/tmp/cay-probes-');
    const open = async () =>
      probedBackend(await openLocal({ dir, poolSize: 0 }), {
        file: join(dir, 'probes-local.json'),
        delayMs: 0,
        onError: (error) => expect.fail(String(error)),
      });
    const first = await open();
    await first.probed;
    const { probes, runtimes } = await first.capabilities();
    expect(probes!.map(({ runtime }) => runtime)).toEqual(runtimes);
    for (const { runtime, state, notes, verified } of probes!) {
      console.info(`${runtime}: verified ${Object.keys(verified).join(', ')}`);
      expect({ runtime, state, notes }).toEqual({ runtime, state: 'done', notes: {} });
    }
    expect(probes!.find(({ runtime }) => runtime === 'runsc')?.verified.memorySnapshots ?? true).toBe(true);
    expect(await first.list()).toEqual([]);
    expect(await first.sweep()).toEqual([]);
    await first.close();
    const second = await open();
    const begun = performance.now();
    await second.probed;
    expect((await second.capabilities()).probes).toEqual(probes);
    console.info(`read from the store in ${Math.round(performance.now() - begun)} ms`);
    await second.destroy();
    await rm(dir, { recursive: true });
  });
});
