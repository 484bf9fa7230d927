import { poll } from '../../lib/poll.ts';
import type { HostResources } from '../host-resources.ts';
import { freezeInstance, isAlive, type Instance } from './instance.ts';

/** How long a guest may take to reconnect after this server has started. */
const DIAL_MS = 2_000;
/** From the end of the guest to the end of its last process. */
const SLACK_MS = 1_000;

/**
 * Asks the guest to end all processes in order. The caller kills what is left of a guest that does not answer
 * in time.
 */
export async function shutDownInstance(
  resources: HostResources,
  instance: Instance,
  graceMs: number,
): Promise<void> {
  if (!(await isAlive(resources, instance.facts))) return;
  // Frozen processes cannot end. Where there is no freezer cgroup, nothing was frozen.
  await freezeInstance(instance, false).catch(() => {});
  const client = await instance.link.ready({ timeoutMs: DIAL_MS }).catch(() => undefined);
  if (!client) return;
  await client.shutdown(graceMs).catch(() => {});
  await poll(async () => !(await isAlive(resources, instance.facts)) || undefined, {
    timeoutMs: graceMs + SLACK_MS,
    delayMs: 10,
  });
}
