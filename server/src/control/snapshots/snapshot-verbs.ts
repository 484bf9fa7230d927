import {
  CayError,
  ImportSnapshotSchema,
  SandboxSpecSchema,
  TakeSnapshotSchema,
  TakeTurnSchema,
  newId,
} from '@cay/sdk/protocol';
import { faultPoint } from '../../lib/fault-point.ts';
import { invalidArchive } from '../pausing/archive.ts';
import { choosePlatform } from '../placement/placement.ts';
import { snapshotting, type Context } from '../context.ts';
import type { SnapshotVerbs } from '../control.ts';
import type { SnapshotRegistry } from './snapshot-registry.ts';
import { formatCursor, parseCursor, parseLabels } from '../listing.ts';
import type { Pausing } from '../pausing/pausing.ts';
import { showSnapshot } from '../../records/snapshots.ts';
import type { Retaining } from './retention.ts';
import { snapshotTree } from './snapshot-tree.ts';

export function snapshotVerbs(
  context: Context,
  registry: SnapshotRegistry,
  pausing: Pausing,
  retaining: Retaining,
): SnapshotVerbs {
  const {
    activity,
    archives,
    database,
    operations,
    find,
    note,
    now,
    pressure,
    quota,
    sandboxes,
    seal,
    snapshots,
  } = context;
  const sandboxOf = (principal: Parameters<typeof find>[0], ref: string | undefined) =>
    ref === undefined ? undefined : find(principal, ref).id;

  return {
    async snapshot(principal, ref, request) {
      const { name, labels, memory } = TakeSnapshotSchema.parse(request);
      const { id } = find(principal, ref);
      return operations.declare(id, 'snapshot', () =>
        operations.run(id, async () => {
          const row = await pausing.present(context.again({ id }), { thawed: memory });
          const quiet = activity.count(id, 'command') === 0;
          return showSnapshot(
            await registry.take(
              row,
              { cause: 'request', name, labels, memory, quiet, stands: true },
              principal,
            ),
          );
        }),
      );
    },

    async turn(principal, ref, request) {
      const { name, labels, memory, waitMs } = TakeTurnSchema.parse(request);
      const { id } = find(principal, ref);
      return operations.declare(id, 'turn', async () => {
        const quiet = await activity.without(id, ['command'], waitMs);
        const taken = await operations.run(id, async () => {
          const row = await pausing.present(context.again({ id }), { thawed: memory });
          return registry.take(
            row,
            { cause: 'turn', name, labels, memory, quiet, numbered: true, stands: true },
            principal,
          );
        });
        retaining.changed(id);
        return showSnapshot(taken);
      });
    },

    snapshots(principal, query) {
      const labels = parseLabels(query.label);
      const after = query.cursor === undefined ? undefined : parseCursor(query.cursor);
      const { project } = principal;
      // A sandbox that is gone is still named by its id, by those who have snapshots of it.
      const left =
        query.sandbox !== undefined &&
        snapshots.list({ project, sandbox: query.sandbox, limit: 1 }).length > 0;
      const sandbox = left ? query.sandbox : sandboxOf(principal, query.sandbox);
      const rows = snapshots.list({ project, sandbox, labels, after, limit: query.limit + 1 });
      const page = rows.slice(0, query.limit);
      const last = rows.length > query.limit ? page.at(-1) : undefined;
      return { snapshots: page.map(showSnapshot), nextCursor: last ? formatCursor(last) : null };
    },

    getSnapshot: (principal, ref, { sandbox } = {}) =>
      showSnapshot(registry.resolve(principal.project, ref, sandboxOf(principal, sandbox))),

    async removeSnapshot(principal, ref, { sandbox } = {}) {
      await registry.drop(
        registry.resolve(principal.project, ref, sandboxOf(principal, sandbox)),
        principal,
        'request',
      );
    },

    async exportSnapshot(principal, ref, { sandbox, signal } = {}) {
      const row = registry.resolve(principal.project, ref, sandboxOf(principal, sandbox));
      const data =
        !row.here && row.object !== null && archives
          ? archives.get(row.object, { signal })
          : snapshotting(context).exportSnapshot(row.id, { signal, seal });
      note('snapshot.exported', { id: row.sandbox, project: row.project }, principal, { snapshot: row.id });
      return { snapshot: showSnapshot(row), data };
    },

    async importSnapshot(principal, data, request, options) {
      const { name, labels, platform, allowForeignMemory } = ImportSnapshotSchema.parse(request);
      if (allowForeignMemory && principal.role !== 'admin') {
        throw new CayError(
          'permission_denied',
          'Only an admin may take in memory that this installation has not signed',
          {
            hint: 'import it without memory: its files are kept',
          },
        );
      }
      if (platform !== undefined) choosePlatform(context.backend, { platform, labels });
      const backend = snapshotting(context);
      const id = newId('snap');
      // Until it has come in nobody knows what it is of; the record only says that something may be there.
      const unknown = SandboxSpecSchema.parse({});
      using coming = quota.begin(principal.project, 'imports', ['uploadBytes', 'snapshotBytes']);
      coming.add(0);
      quota.requireRoom(principal.project, 'snapshots', 1);
      pressure.admit({ memoryBytes: null, diskBytes: null }, { starts: false, platform });
      snapshots.insert({
        id,
        project: principal.project,
        sandbox: newId('sbx'),
        parent: null,
        name: null,
        turn: null,
        cause: 'import',
        labels,
        memory: false,
        runtime: null,
        spec: unknown,
        quiet: true,
        state: 'taking',
        here: true,
        object: null,
        fileBytes: null,
        memoryBytes: null,
        createdAtMs: now(),
      });
      try {
        await faultPoint('control.import.recorded');
        const admit = (bytes: number) => coming.add(bytes);
        const facts = await backend.importSnapshot(id, data, {
          ...options,
          platform,
          seal,
          foreignMemory: allowForeignMemory,
          admit,
        });
        await faultPoint('control.import.taken');
        // What an archive says is a stranger's word.
        const spec = SandboxSpecSchema.safeParse(facts.spec);
        if (!spec.success) throw invalidArchive(spec.error);
        return database.transaction(() => {
          const draft = snapshots.get(id)!;
          snapshots.delete(id);
          const { memory, memoryBytes = null, memoryDropped = null } = facts;
          const runtime = memory ? (facts.runtime ?? null) : null;
          const fileBytes = facts.fileBytes ?? coming.bytes - (memoryBytes ?? 0);
          const { sandbox } = facts;
          snapshots.insert({
            ...draft,
            sandbox,
            name: name ?? null,
            spec: spec.data,
            memory,
            runtime,
            fileBytes,
            memoryBytes,
            state: 'kept',
          });
          const row = snapshots.get(id)!;
          const told = {
            snapshot: id,
            memory,
            ...(memoryDropped && { memoryDropped }),
            ...(allowForeignMemory && { allowForeignMemory }),
          };
          note('snapshot.imported', { id: row.sandbox, project: row.project }, principal, told);
          return { ...showSnapshot(row), memoryDropped };
        });
      } catch (error) {
        await backend.removeSnapshot(id).then(() => snapshots.delete(id), context.onError);
        throw error;
      }
    },

    tree: (principal, ref) =>
      snapshotTree(
        find(principal, ref),
        sandboxes.list({ project: principal.project }),
        snapshots.list({ project: principal.project }),
      ),
  };
}
