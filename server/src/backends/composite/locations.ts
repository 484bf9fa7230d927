/** Knows on which platform each sandbox and snapshot is: by what it was told, else by asking all of them. */
import { CayError, type SandboxId, type SnapshotId } from '@cay/sdk/protocol';
import { canSnapshot, type Backend } from '../backend.ts';
import { requireSandboxId, requireSnapshotId } from '../support/check.ts';
import type { Platforms } from './platforms.ts';

export interface Place {
  name: string;
  backend: Backend;
}

export interface Locations {
  note(id: SandboxId | SnapshotId, platform: string): void;
  forget(id: SandboxId | SnapshotId): void;
  /** What was noted, without asking anybody. */
  told(id: SandboxId | SnapshotId): string | undefined;
  /** Undefined if it is nowhere. Rejects `unavailable` if its platform is away, or one that may have it. */
  sandbox(id: SandboxId): Promise<Place | undefined>;
  snapshot(id: SnapshotId): Promise<Place | undefined>;
}

export function locations(platforms: Platforms): Locations {
  const known = new Map<string, string>();

  async function find(
    id: string,
    what: string,
    has: (backend: Backend) => Promise<boolean>,
  ): Promise<Place | undefined> {
    const told = known.get(id);
    if (told !== undefined) return { name: told, backend: await configured(told, `${what} "${id}"`) };
    const answers = await platforms.each(has);
    const found = answers.find((each) => 'answer' in each && each.answer);
    if (found) {
      known.set(id, found.name);
      return { name: found.name, backend: await platforms.get(found.name) };
    }
    for (const each of answers) {
      if (!('away' in each)) continue;
      throw new CayError(
        'unavailable',
        `Cannot find ${what} "${id}": platform "${each.name}" does not answer`,
        {
          cause: each.away,
          details: { platform: each.name },
        },
      );
    }
    return undefined;
  }

  /** A server may have been started without a platform that has sandboxes. */
  async function configured(name: string, what: string): Promise<Backend> {
    if (platforms.names.includes(name)) return platforms.get(name);
    throw new CayError(
      'unavailable',
      `Cannot reach ${what}: it is on platform "${name}", which this server does not have`,
      {
        details: { platform: name },
        hint: `start the server with "${name}" among its backends`,
      },
    );
  }

  return {
    note: (id, platform) => void known.set(id, platform),
    forget: (id) => void known.delete(id),
    told: (id) => known.get(id),
    async sandbox(id) {
      requireSandboxId(id);
      return find(id, 'sandbox', async (backend) => (await backend.observe(id)).phase !== 'absent');
    },
    async snapshot(id) {
      requireSnapshotId(id);
      return find(
        id,
        'snapshot',
        async (backend) =>
          canSnapshot(backend) && (await backend.snapshots()).some((snapshot) => snapshot.id === id),
      );
    },
  };
}
