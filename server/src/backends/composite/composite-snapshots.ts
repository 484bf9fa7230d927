/** Snapshots are on the member of their sandbox, and so are the sandboxes made from them. */
import { CayError, type SandboxId, type SandboxSpec, type SnapshotId } from '@cay/sdk/protocol';
import type { CallScope, SnapshotFacts, Snapshotting } from '../backend.ts';
import { requireSnapshotId } from '../support/check.ts';
import type { Locations, Member } from './locations.ts';
import { ownSpec, type Members } from './members.ts';

export interface CompositeSnapshotsOptions {
  members: Members;
  where: Locations;
  placeOf(id: SandboxId, spec: SandboxSpec, scope?: CallScope): Promise<Member>;
}

interface SnapshotPlace {
  name: string;
  backend: Snapshotting;
}

export function compositeSnapshots({ members, where, placeOf }: CompositeSnapshotsOptions): Snapshotting {
  const { noun } = members;

  function able({ name, backend }: Member, action: string): SnapshotPlace {
    const snapshots = backend.ability('snapshots');
    if (snapshots) return { name, backend: snapshots };
    throw new CayError('unsupported', `Cannot ${action}: ${noun} "${name}" has no snapshots`, {
      details: { [noun]: name },
    });
  }

  const fallback = async (): Promise<Member> => ({
    name: members.fallback,
    backend: await members.get(members.fallback),
  });

  /** The member that has the snapshot. */
  async function of(snapshot: SnapshotId, scope?: CallScope): Promise<SnapshotPlace> {
    const found = await where.snapshot(snapshot, scope);
    if (found) return able(found, `use snapshot "${snapshot}"`);
    throw new CayError('not_found', `Cannot find snapshot "${snapshot}"`, { details: { what: 'snapshot' } });
  }

  const labelled = ({ spec, ...facts }: SnapshotFacts, name: string): SnapshotFacts => ({
    ...facts,
    spec: members.label(spec, name),
  });

  function elsewhere(action: string, snapshot: SnapshotId, here: string, there: string): CayError {
    return new CayError(
      'failed_precondition',
      `Cannot ${action}: snapshot "${snapshot}" is on ${noun} "${there}", not on "${here}"`,
      {
        details: { [noun]: there },
        hint: `use it on "${there}", move the sandbox, or import an archive of it on "${here}"`,
      },
    );
  }

  return {
    async snapshot(id, snapshot, options) {
      const member = (await where.sandbox(id, options)) ?? (await fallback());
      const { name, backend } = able(member, `take a snapshot of sandbox "${id}"`);
      requireSnapshotId(snapshot);
      // Noted first: the remains of a failed snapshot are then looked for there.
      where.note(snapshot, where.noted(snapshot) ?? name);
      return labelled(await backend.snapshot(id, snapshot, options), name);
    },

    async snapshots(scope) {
      const answers = await members.each(
        async (backend, name) =>
          ((await backend.ability('snapshots')?.snapshots(scope)) ?? []).map((facts) =>
            labelled(facts, name),
          ),
        scope,
      );
      return answers.flatMap((each) => {
        if ('answer' in each) return each.answer;
        throw each.away;
      });
    },

    async removeSnapshot(snapshot, scope) {
      const found = await where.snapshot(snapshot, scope);
      await found?.backend.ability('snapshots')?.removeSnapshot(snapshot, scope);
      where.forget(snapshot);
    },

    async clone(id, spec, snapshot, options = {}) {
      const from = await of(snapshot, options);
      const wanted = members.target(spec, options);
      if (wanted !== undefined && wanted !== from.name)
        throw elsewhere(`make sandbox "${id}"`, snapshot, wanted, from.name);
      await placeOf(id, members.label(spec, from.name), options);
      return from.backend.clone(id, ownSpec(spec), snapshot, options);
    },

    async rollback(id, snapshot, options) {
      const sandbox = await where.sandbox(id, options);
      const { name, backend } = able(sandbox ?? (await fallback()), `roll sandbox "${id}" back`);
      const from = sandbox && (await where.snapshot(snapshot, options));
      if (from && from.name !== name) throw elsewhere(`roll sandbox "${id}" back`, snapshot, name, from.name);
      return backend.rollback(id, snapshot, options);
    },

    fileBytes: async (snapshot) => (await of(snapshot)).backend.fileBytes?.(snapshot),

    async *changes(from, to, scope) {
      const [before, after] = [await of(from, scope), await of(to, scope)];
      if (before.name !== after.name)
        throw elsewhere(`compare with snapshot "${from}"`, to, before.name, after.name);
      yield* before.backend.changes(from, to, scope);
    },

    snapshotFiles: (snapshot) => ({
      async *read(path, scope) {
        yield* (await of(snapshot, scope)).backend.snapshotFiles(snapshot).read(path, scope);
      },
      async *tar(paths, scope) {
        yield* (await of(snapshot, scope)).backend.snapshotFiles(snapshot).tar(paths, scope);
      },
    }),

    async *exportSnapshot(snapshot, options) {
      yield* (await of(snapshot, options)).backend.exportSnapshot(snapshot, options);
    },

    async importSnapshot(snapshot, archive, { platform, ...options } = {}) {
      requireSnapshotId(snapshot);
      const asked = members.home ? members.home(options) : platform;
      const name = asked ?? members.fallback;
      const { backend } = able({ name, backend: await members.get(name) }, `import snapshot "${snapshot}"`);
      where.note(snapshot, name);
      return labelled(await backend.importSnapshot(snapshot, archive, options), name);
    },
  };
}
