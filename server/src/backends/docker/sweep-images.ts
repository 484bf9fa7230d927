import { LABELS } from './container-config.ts';
import type { DockerClient } from './docker-client.ts';

/**
 * Removes what an earlier run left: containers for preparing, and images with another guest that nothing
 * uses.
 */
export async function sweepImages(
  { client, installation }: { client: DockerClient; installation: string },
  guestHash: string,
): Promise<void> {
  const action = 'remove what preparing images left behind';
  const scratch = (await client.json('GET', '/containers/json', {
    action,
    query: { all: true, filters: JSON.stringify({ label: [`${LABELS.scratch}=${installation}`] }) },
  })) as { Id: string }[];
  for (const { Id } of scratch)
    await client.json('DELETE', `/containers/${Id}`, {
      action,
      query: { force: true, v: true },
      allow: [404, 409],
    });
  const images = (await client.json('GET', '/images/json', {
    action,
    query: {
      filters: JSON.stringify({ label: [`${LABELS.installation}=${installation}`, LABELS.guest] }),
    },
  })) as { Id: string; Labels: Record<string, string> | null }[];
  for (const { Id, Labels } of images) {
    // The image of a snapshot has the guest of its time.
    if (Labels?.[LABELS.snapshot]) continue;
    if (Labels?.[LABELS.guest] !== guestHash)
      await client.json('DELETE', `/images/${Id}`, { action, allow: [404, 409] });
  }
}
