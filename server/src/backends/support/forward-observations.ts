import { setTimeout as sleep } from 'node:timers/promises';
import type { Broadcast } from '../../lib/broadcast.ts';
import type { Backend, Observation } from '../backend.ts';

const AGAIN_MS = 1_000;

/**
 * Passes on what a backend tells of its sandboxes, until the signal aborts. A reader that was too slow is
 * ended, and begins anew.
 */
export async function passOn(
  backend: Backend,
  to: Broadcast<Observation>,
  { signal, onError }: { signal: AbortSignal; onError(error: unknown): void },
): Promise<void> {
  while (!signal.aborted) {
    try {
      for await (const observed of backend.watch({ signal })) to.send(observed);
    } catch (error) {
      if (!signal.aborted) onError(error);
    }
    await sleep(AGAIN_MS, undefined, { signal, ref: false }).catch(() => {});
  }
}
