import { setTimeout as sleep } from 'node:timers/promises';
import type { Broadcast } from '../../lib/broadcast.ts';
import type { Backend, Observation } from '../backend.ts';

const AGAIN_MS = 1_000;

/**
 * Forwards the observations of a backend until the signal aborts. A reader that was too slow is ended, and
 * subscribes again.
 */
export async function forwardObservations(
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
