import type { Orphan, Sweeping } from '../backend.ts';
import { LABELS } from './container-config.ts';
import type { DockerContext } from './docker-context.ts';
import { removeImage } from './flat-image.ts';
import type { SnapshotReaders } from './snapshot-readers.ts';

/** Images without a name that are younger may be in the making. */
const YOUNG_MS = 60 * 60_000;

/**
 * Removes containers that nobody reads any more, and images without a name: of snapshots that were removed
 * while they were read, and of imports that did not come to their end. What is in use the engine does not
 * remove.
 */
export function sweeper(
  { client, installation }: Pick<DockerContext, 'client' | 'installation'>,
  readers: SnapshotReaders,
): Sweeping['sweep'] {
  async function nameless(label: string): Promise<{ Id: string; Created: number }[]> {
    return (await client.json('GET', '/images/json', {
      action: 'look for unused images',
      query: { filters: JSON.stringify({ dangling: ['true'], label: [label] }) },
    })) as { Id: string; Created: number }[];
  }

  async function isUsed(image: string): Promise<boolean> {
    const found = (await client.json('GET', '/containers/json', {
      action: 'look who uses an image',
      query: { all: true, limit: 1, filters: JSON.stringify({ ancestor: [image] }) },
    })) as unknown[];
    return found.length > 0;
  }

  return async ({ dryRun = false } = {}) => {
    const orphans: Orphan[] = await readers.sweep({ dryRun });
    const removed = await nameless(`${LABELS.installation}=${installation}`);
    const unfinished = await nameless(`${LABELS.scratch}=${installation}`);
    const old = unfinished.filter(({ Created }) => Date.now() - Created * 1000 > YOUNG_MS);
    for (const { Id } of [...removed, ...old]) {
      if (await isUsed(Id)) continue;
      orphans.push({ kind: 'image', name: Id.slice(0, 19) });
      if (!dryRun) await removeImage(client, Id);
    }
    return orphans;
  };
}
