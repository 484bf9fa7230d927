import { setTimeout as sleep } from 'node:timers/promises';
import type { CayEvent, Webhook } from '@cay/sdk/protocol';
import { describe, expect, it } from 'vitest';
import { startDispatch, type Dispatch } from './dispatch.ts';

const HOUR_MS = 3600_000;

/** A dispatch whose receiver refuses everything, and whose first record of a failure waits for the test. */
function startFailing(): {
  dispatch: Dispatch;
  recording: Promise<void>;
  recorded(): void;
  attempts(): number;
} {
  const recording = Promise.withResolvers<void>();
  const recorded = Promise.withResolvers<void>();
  let attempts = 0;
  const event = { id: 1, type: 'sandbox.created' } as CayEvent;
  const webhook: Webhook = {
    id: 'whk_1',
    project: 'prj_1',
    url: 'http://127.0.0.1/',
    types: [],
    createdAtMs: 0,
    deliveredTo: 0,
    attempts: 0,
    failingSinceMs: null,
    lastError: null,
    disabledAtMs: null,
  };
  const dispatch = startDispatch({
    webhook,
    records: {
      async update() {
        recording.resolve();
        await recorded.promise;
      },
    },
    events: { list: async () => [event] },
    pace: { timeoutMs: 1000, firstMs: HOUR_MS, longestMs: HOUR_MS, giveUpMs: 24 * HOUR_MS },
    async send() {
      attempts++;
      return { ok: false, status: 500, error: 'It answered 500', durationMs: 1 };
    },
    async disable() {},
    now: Date.now,
    ageing: Date.now,
    onError(error) {
      throw error;
    },
  });
  return {
    dispatch,
    recording: recording.promise,
    recorded: () => recorded.resolve(),
    attempts: () => attempts,
  };
}

describe('a dispatch that records a failure', () => {
  it('ends without the delay of a retry when it is stopped meanwhile', async () => {
    const { dispatch, recording, recorded, attempts } = startFailing();
    await recording;
    const stopped = dispatch.stop().then(() => 'stopped');
    recorded();
    expect(await Promise.race([stopped, sleep(5000, 'waits')])).toBe('stopped');
    expect(attempts()).toBe(1);
  });

  it('tries again at once when it is asked to meanwhile', async () => {
    const { dispatch, recording, recorded, attempts } = startFailing();
    await recording;
    dispatch.wake({ retry: true });
    recorded();
    await expect.poll(attempts, { timeout: 5000 }).toBe(2);
    await dispatch.stop();
    expect(attempts()).toBe(2);
  });
});
