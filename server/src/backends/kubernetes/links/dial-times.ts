import { setTimeout as sleep } from 'node:timers/promises';

/**
 * Waits before the first attempts, one after the other, until the cluster says that the container runs. There
 * are no further attempts before that.
 */
const UNASKED_MS = [200, 300, 600];

/**
 * When to dial a guest whose container is about to be started. A node reports that a container runs up to a
 * second or two after it does, so a few attempts are made before; each costs a request, and all further ones
 * wait until `running` resolves.
 */
export function dialTimes(running: Promise<unknown>): () => Promise<void> {
  let attempt = 0;
  return async () => {
    const ms = UNASKED_MS[attempt++];
    await (ms === undefined ? running : Promise.race([running, sleep(ms)]));
  };
}
