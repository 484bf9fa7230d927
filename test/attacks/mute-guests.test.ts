import { setTimeout as sleep } from 'node:timers/promises';
import { Sandbox } from 'e2b';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { e2bGround, type E2bGround } from '../e2b/ground.ts';
import { whyNoLocal } from '../support/local-ground.ts';

/** Without descriptors the guest takes no connection any more, and dials none. */
const MUTE = 'import resource; resource.prlimit(1, resource.RLIMIT_NOFILE, (3, 3))';
/** A guest is waited for that long. */
const DIAL_MS = 5_000;

const why = whyNoLocal();

describe.skipIf(why)('code that makes the guest of its sandbox mute', () => {
  let ground: E2bGround;
  beforeAll(async () => {
    ground = await e2bGround('runc');
  }, 120_000);
  afterAll(() => ground?.[Symbol.asyncDispose]());

  it('does not keep the next server from staying up', async () => {
    const sandbox = await Sandbox.create(ground.access);
    await sandbox.commands.run('sleep 1000', { background: true, timeoutMs: 0 });
    await sandbox.commands.run(`python3 -c '${MUTE}'`, { user: 'root' });
    const unhandled: unknown[] = [];
    const caught = (error: unknown) => unhandled.push(error);
    process.on('unhandledRejection', caught);
    try {
      await ground.restart();
      await sleep(DIAL_MS + 2_000);
      expect(unhandled).toEqual([]);
      expect((await fetch(`${ground.url}/healthz`)).status).toBe(200);
    } finally {
      process.off('unhandledRejection', caught);
    }
  }, 60_000);
});
