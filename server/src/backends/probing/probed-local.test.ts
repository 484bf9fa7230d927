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
      probedBackend(await openLocal({ dir, poolSize: 0, buckets: {} }), {
        file: join(dir, 'probes-local.json'),
        delayMs: 0,
        onError: (error) => failures.push(error),
      });
    const failures: unknown[] = [];
    let backend = await open();
    try {
      await backend.probed;
      expect(failures).toEqual([]);
      const { probes, runtimes } = await backend.capabilities();
      expect(probes!.map(({ runtime }) => runtime)).toEqual(runtimes);
      for (const { runtime, state, notes, verified } of probes!) {
        console.info(`${runtime}: verified ${Object.keys(verified).join(', ')}`);
        expect({ runtime, state, notes }).toEqual({ runtime, state: 'done', notes: {} });
      }
      expect(probes!.find(({ runtime }) => runtime === 'runsc')?.verified.memorySnapshots ?? true).toBe(true);
      expect(await backend.list()).toEqual([]);
      expect(await backend.sweep()).toEqual([]);
      await backend.close();
      backend = await open();
      const begun = performance.now();
      await backend.probed;
      expect((await backend.capabilities()).probes).toEqual(probes);
      console.info(`read from the store in ${Math.round(performance.now() - begun)} ms`);
    } finally {
      // Also after a failure: a pool that stays mounted is in the way of everything else on the machine.
      await backend.destroy();
      await rm(dir, { recursive: true });
    }
  });
});
