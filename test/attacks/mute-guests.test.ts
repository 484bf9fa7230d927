import { setTimeout as sleep } from 'node:timers/promises';
import { Sandbox } from 'e2b';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { e2bGround, type E2bPlatform } from '../e2b/e2b-platform.ts';
import { whyNoLocal } from '../support/local-platform.ts';

/** Without descriptors the guest takes no connection any more, and dials none. */
const MUTE = 'import resource; resource.prlimit(1, resource.RLIMIT_NOFILE, (3, 3))';
/** A guest is waited for that long. */
const DIAL_MS = 5_000;

const why = whyNoLocal();

describe.skipIf(why)('code that makes the guest of its sandbox mute', () => {
  let platform: E2bPlatform;
  beforeAll(async () => {
    platform = await e2bGround('runc');
  }, 120_000);
  afterAll(() => platform?.[Symbol.asyncDispose]());

  it('does not keep the next server from staying up', async () => {
    const sandbox = await Sandbox.create(platform.access);
    await sandbox.commands.run('sleep 1000', { background: true, timeoutMs: 0 });
    await sandbox.commands.run(`python3 -c '${MUTE}'`, { user: 'root' });
    const unhandled: unknown[] = [];
    const caught = (error: unknown) => unhandled.push(error);
    process.on('unhandledRejection', caught);
    try {
      await platform.restart();
      await sleep(DIAL_MS + 2_000);
      expect(unhandled).toEqual([]);
      expect((await fetch(`${platform.url}/healthz`)).status).toBe(200);
    } finally {
      process.off('unhandledRejection', caught);
    }
  }, 60_000);
});
