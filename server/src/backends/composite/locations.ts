/**
 * Knows which member has each sandbox, snapshot and volume: from what was noted, else by asking all members.
 */
import { CayError, type SandboxId, type SnapshotId, type VolumeId } from '@cay/sdk/protocol';
import type { Backend, CallScope } from '../backend.ts';
import { requireSandboxId, requireSnapshotId, requireVolumeId } from '../support/check.ts';
import type { Members } from './members.ts';

/** One member by name. */
export interface Member {
  name: string;
  backend: Backend;
}

type PlacedId = SandboxId | SnapshotId | VolumeId;

export interface Locations {
  note(id: PlacedId, member: string): void;
  forget(id: PlacedId): void;
  /** What was noted, without asking a member. */
  noted(id: PlacedId): string | undefined;
  /** Undefined if no member has it. Rejects `unavailable` if a member that may have it does not answer. */
  sandbox(id: SandboxId, scope?: CallScope): Promise<Member | undefined>;
  snapshot(id: SnapshotId, scope?: CallScope): Promise<Member | undefined>;
  volume(id: VolumeId, scope?: CallScope): Promise<Member | undefined>;
}

export function locations(members: Members): Locations {
  const known = new Map<string, string>();
  const member = async (name: string): Promise<Member> => ({ name, backend: await members.get(name) });

  async function find(
    id: string,
    what: string,
    has: (backend: Backend) => Promise<boolean>,
    scope: CallScope | undefined,
  ): Promise<Member | undefined> {
    const noted = known.get(id);
    if (noted !== undefined) {
      requireConfigured(noted, `${what} "${id}"`);
      return member(noted);
    }
    const answers = await members.each(has, scope);
    const found = answers.find((each) => 'answer' in each && each.answer);
    if (found) {
      known.set(id, found.name);
      return member(found.name);
    }
    for (const each of answers) {
      if (!('away' in each)) continue;
      throw new CayError(
        'unavailable',
        `Cannot find ${what} "${id}": ${members.noun} "${each.name}" does not answer`,
        { cause: each.away, details: { [members.noun]: each.name } },
      );
    }
    return undefined;
  }

  /** A server may have been started without a platform that has sandboxes. */
  function requireConfigured(name: string, what: string): void {
    if (members.has(name)) return;
    throw new CayError(
      'unavailable',
      `Cannot reach ${what}: it is on ${members.noun} "${name}", which this server does not have`,
      {
        details: { [members.noun]: name },
        hint: `start the server with "${name}" among its backends`,
      },
    );
  }

  return {
    note: (id, name) => void known.set(id, name),
    forget: (id) => void known.delete(id),
    noted: (id) => known.get(id),
    async sandbox(id, scope) {
      requireSandboxId(id);
      const has = async (backend: Backend) => (await backend.observe(id, scope)).phase !== 'absent';
      return find(id, 'sandbox', has, scope);
    },
    async snapshot(id, scope) {
      requireSnapshotId(id);
      const has = async (backend: Backend) =>
        ((await backend.ability('snapshots')?.snapshots(scope)) ?? []).some((snapshot) => snapshot.id === id);
      return find(id, 'snapshot', has, scope);
    },
    async volume(id, scope) {
      requireVolumeId(id);
      const has = async (backend: Backend) =>
        ((await backend.ability('volumes')?.listVolumes(scope)) ?? []).some((volume) => volume.id === id);
      return find(id, 'volume', has, scope);
    },
  };
}
