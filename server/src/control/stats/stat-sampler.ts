/**
 * Reads what each active sandbox uses, every interval, and keeps it. The readings are spread over the
 * interval, a few at a time, so that a thousand sandboxes cost a steady trickle and no burst.
 */
import type { SandboxId, Stats } from '@cay/sdk/protocol';
import type { Core } from '../core.ts';
import type { StatRings } from './stat-rings.ts';

export interface StatSampler {
  start(): void;
  close(): Promise<void>;
}

const TICK_MS = 500;
/** A platform that does not answer must not hold up the others. */
const ANSWER_MS = 5_000;
const SWEEP_MS = 10 * 60_000;

export function openStatSampler({
  closing,
  onError,
  read,
  records: { sandboxes },
  rings,
}: Pick<Core, 'closing' | 'onError' | 'records'> & {
  rings: StatRings;
  read(id: SandboxId, options: { cheap: true; signal: AbortSignal }): Promise<Stats>;
}): StatSampler {
  let waiting: SandboxId[] = [];
  let share = 0;
  let nextMs = 0;
  let sweptMs = 0;
  let timer: NodeJS.Timeout | undefined;
  let ticking: Promise<void> | undefined;

  async function sample(id: SandboxId): Promise<void> {
    try {
      const stats = await read(id, { cheap: true, signal: AbortSignal.timeout(ANSWER_MS) });
      await rings.write(id, stats);
    } catch {
      // It ended, or its platform does not answer: the next interval has a reading again, or it has none.
    }
  }

  async function tick(): Promise<void> {
    const nowMs = performance.now();
    if (waiting.length === 0 && nowMs >= nextMs) {
      nextMs = nowMs + rings.intervalMs;
      waiting = (await sandboxes.list({ state: 'active' })).map(({ id }) => id);
      share = Math.ceil((waiting.length * TICK_MS) / rings.intervalMs);
      if (nowMs - sweptMs > SWEEP_MS || sweptMs === 0) {
        sweptMs = nowMs;
        await rings.keepOnly(new Set((await sandboxes.ids()).map(({ id }) => id)));
      }
    }
    await Promise.all(waiting.splice(0, share).map(sample));
  }

  return {
    start() {
      timer = setInterval(() => {
        if (closing.aborted) return;
        ticking ??= tick()
          .catch(onError)
          .finally(() => (ticking = undefined));
      }, TICK_MS).unref();
    },
    async close() {
      clearInterval(timer);
      await ticking;
    },
  };
}
