import { retry } from '../../lib/retry.ts';
import type { HostResources } from '../host-resources.ts';
import { freezeInstance, isAlive, type Instance } from './instance.ts';

/** How long a guest may take that is dialling anew, because this server has only just come. */
const DIAL_MS = 2_000;
/** From the guest's own end to that of its last process. */
const SLACK_MS = 1_000;

/**
 * Has the guest end everything in order. One that does not answer, or not in time, is left to be ended by
 * force.
 */
export async function shutDownInstance(
  resources: HostResources,
  instance: Instance,
  graceMs: number,
): Promise<void> {
  if (!(await isAlive(resources, instance.facts))) return;
  // Frozen, nobody could end in order. A machine without a freezer has frozen nothing.
  await freezeInstance(instance, false).catch(() => {});
  const client = await instance.link.ready({ timeoutMs: DIAL_MS }).catch(() => undefined);
  if (!client) return;
  await client.shutdown(graceMs).catch(() => {});
  await retry(async () => !(await isAlive(resources, instance.facts)) || undefined, {
    timeoutMs: graceMs + SLACK_MS,
    delayMs: 10,
  });
}
