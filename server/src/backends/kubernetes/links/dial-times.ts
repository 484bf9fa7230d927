import { setTimeout as sleep } from 'node:timers/promises';

/**
 * How long the first attempts wait for a sign of the cluster, one after the other. There are no more than
 * these without one.
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
