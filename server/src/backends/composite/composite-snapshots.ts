/** Snapshots are on the platform of their sandbox, and all that is made of them is there too. */
import { CayError, type SandboxId, type SandboxSpec, type SnapshotId } from '@cay/sdk/protocol';
import { canSnapshot, type Backend, type SnapshotFacts, type Snapshotting } from '../backend.ts';
import { requireSnapshotId } from '../support/check.ts';
import { ownSpec, type Platforms } from './platforms.ts';
import type { Place, Locations } from './locations.ts';

export interface RoutedSnapshotsOptions {
  platforms: Platforms;
  where: Locations;
  placeOf(id: SandboxId, spec: SandboxSpec): Promise<Place>;
}

interface SnapshotPlace {
  name: string;
  backend: Backend & Snapshotting;
}

export function routedSnapshots({ platforms, where, placeOf }: RoutedSnapshotsOptions): Snapshotting {
  function able({ name, backend }: Place, action: string): SnapshotPlace {
    if (canSnapshot(backend)) return { name, backend };
    throw new CayError('unsupported', `Cannot ${action}: platform "${name}" has no snapshots`, {
      details: { platform: name },
    });
  }

  const first = async (): Promise<Place> => ({
    name: platforms.first,
    backend: await platforms.get(platforms.first),
  });

  /** Where the snapshot is. */
  async function of(snapshot: SnapshotId): Promise<SnapshotPlace> {
    const found = await where.snapshot(snapshot);
    if (found) return able(found, `use snapshot "${snapshot}"`);
    throw new CayError('not_found', `Cannot find snapshot "${snapshot}"`, { details: { what: 'snapshot' } });
  }

  const told = ({ spec, ...facts }: SnapshotFacts, platform: string): SnapshotFacts => ({
    ...facts,
    spec: { ...spec, platform },
  });

  function elsewhere(action: string, snapshot: SnapshotId, here: string, there: string): CayError {
    return new CayError(
      'failed_precondition',
      `Cannot ${action}: snapshot "${snapshot}" is on platform "${there}", not on "${here}"`,
      {
        details: { platform: there },
        hint: `take it out as an archive and import that on "${here}"`,
      },
    );
  }

  return {
    async snapshot(id, snapshot, options) {
      const { name, backend } = able(
        (await where.sandbox(id)) ?? (await first()),
        `take a snapshot of sandbox "${id}"`,
      );
      requireSnapshotId(snapshot);
      // Before the operation: what is left of one that fails is looked for there.
      where.note(snapshot, where.told(snapshot) ?? name);
      return told(await backend.snapshot(id, snapshot, options), name);
    },

    async snapshots(options) {
      const answers = await platforms.each(async (backend, name) =>
        canSnapshot(backend) ? (await backend.snapshots(options)).map((facts) => told(facts, name)) : [],
      );
      return answers.flatMap((each) => {
        if ('answer' in each) return each.answer;
        throw each.away;
      });
    },

    async removeSnapshot(snapshot, options) {
      const found = await where.snapshot(snapshot);
      if (found && canSnapshot(found.backend)) await found.backend.removeSnapshot(snapshot, options);
      where.forget(snapshot);
    },

    async clone(id, spec, snapshot, options) {
      const from = await of(snapshot);
      if (spec.platform !== undefined && spec.platform !== from.name) {
        throw elsewhere(`make sandbox "${id}"`, snapshot, platforms.require(spec.platform), from.name);
      }
      await placeOf(id, { ...spec, platform: from.name });
      return from.backend.clone(id, ownSpec(spec), snapshot, options);
    },

    async rollback(id, snapshot, options) {
      const sandbox = await where.sandbox(id);
      const { name, backend } = able(sandbox ?? (await first()), `roll sandbox "${id}" back`);
      const from = sandbox && (await where.snapshot(snapshot));
      if (from && from.name !== name) throw elsewhere(`roll sandbox "${id}" back`, snapshot, name, from.name);
      return backend.rollback(id, snapshot, options);
    },

    fileBytes: async (snapshot) => (await of(snapshot)).backend.fileBytes?.(snapshot),

    async *changes(from, to, options) {
      const [before, after] = [await of(from), await of(to)];
      if (before.name !== after.name)
        throw elsewhere(`compare with snapshot "${from}"`, to, before.name, after.name);
      yield* before.backend.changes(from, to, options);
    },

    snapshotFiles: (snapshot) => ({
      async *read(path, options) {
        yield* (await of(snapshot)).backend.snapshotFiles(snapshot).read(path, options);
      },
      async *tar(paths, options) {
        yield* (await of(snapshot)).backend.snapshotFiles(snapshot).tar(paths, options);
      },
    }),

    async *exportSnapshot(snapshot, options) {
      yield* (await of(snapshot)).backend.exportSnapshot(snapshot, options);
    },

    async importSnapshot(snapshot, archive, { platform, ...options } = {}) {
      requireSnapshotId(snapshot);
      const name = platform === undefined ? platforms.first : platforms.require(platform);
      const { backend } = able(
        { name, backend: await platforms.get(name) },
        `take in snapshot "${snapshot}"`,
      );
      where.note(snapshot, name);
      return told(await backend.importSnapshot(snapshot, archive, options), name);
    },
  };
}
