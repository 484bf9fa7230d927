import { TakeSnapshotSchema, TakeTurnSchema, type SnapshotRef } from '@cay/sdk/protocol';
import { showSnapshot } from '../../records/tables/snapshot-row.ts';
import type { Syncing } from '../buckets/syncing.ts';
import type { Core } from '../core.ts';
import { formatCursor, parseCursor, parseLabels } from '../listing.ts';
import type { Waker } from '../pausing/wake.ts';
import type { Principal } from '../tenants/principal.ts';
import { requireSnapshots } from './require-snapshots.ts';
import type { Retaining } from './retention.ts';
import type { SnapshotRegistry } from './snapshot-registry.ts';
import { snapshotTree } from './snapshot-tree.ts';
import type { SnapshotVerbs } from './snapshot.ts';

export function snapshotVerbs({
  activity,
  archives,
  backend,
  lookup,
  operations,
  recordEvent,
  records,
  registry,
  retention,
  syncing,
  waker,
}: Pick<Core, 'activity' | 'archives' | 'backend' | 'lookup' | 'operations' | 'recordEvent' | 'records'> & {
  registry: SnapshotRegistry;
  retention: Retaining;
  syncing: Pick<Syncing, 'up'>;
  waker: Waker;
}): Omit<SnapshotVerbs, 'importSnapshot'> {
  const sandboxOf = async (principal: Principal, ref: string | undefined) =>
    ref === undefined ? undefined : (await lookup.find(principal, ref)).id;

  const resolve = async (principal: Principal, ref: SnapshotRef, sandbox: string | undefined) =>
    registry.resolve(records, principal.project, ref, await sandboxOf(principal, sandbox));

  return {
    async snapshot(principal, ref, request) {
      const { name, labels, memory } = TakeSnapshotSchema.parse(request);
      const { id } = await lookup.find(principal, ref);
      const take = async () => {
        const row = await waker.ensureUnarchived(await lookup.reload({ id }), { thaw: memory });
        const quiet = activity.count(id, 'command') === 0;
        return registry.take(
          row,
          { cause: 'request', name, labels, memory, quiet, becomesBase: true },
          principal,
        );
      };
      return showSnapshot(await operations.claim(id, 'snapshot', () => operations.enqueue(id, take)));
    },

    async turn(principal, ref, request) {
      const { name, labels, memory, waitMs } = TakeTurnSchema.parse(request);
      const { id } = await lookup.find(principal, ref);
      return operations.claim(id, 'turn', async (signal) => {
        const quiet = await activity.waitUntilNone(id, ['command'], waitMs, signal);
        const taken = await operations.enqueue(id, async () => {
          const row = await waker.ensureUnarchived(await lookup.reload({ id }), { thaw: memory });
          // If it fails there is no turn, and the call can be repeated.
          if (row.state === 'active') await syncing.up(row);
          return registry.take(
            row,
            { cause: 'turn', name, labels, memory, quiet, numbered: true, becomesBase: true },
            principal,
          );
        });
        retention.changed(id);
        return showSnapshot(taken);
      });
    },

    async snapshots(principal, query) {
      const labels = parseLabels(query.label);
      const after = query.cursor === undefined ? undefined : parseCursor(query.cursor);
      const { project } = principal;
      // A removed sandbox is still named by its id if snapshots of it are left.
      const hasSnapshots =
        query.sandbox !== undefined &&
        (await records.snapshots.list({ project, sandbox: query.sandbox, limit: 1 })).length > 0;
      const sandbox = hasSnapshots ? query.sandbox : await sandboxOf(principal, query.sandbox);
      const rows = await records.snapshots.list({ project, sandbox, labels, after, limit: query.limit + 1 });
      const page = rows.slice(0, query.limit);
      const last = rows.length > query.limit ? page.at(-1) : undefined;
      return { snapshots: page.map(showSnapshot), nextCursor: last ? formatCursor(last) : null };
    },

    getSnapshot: async (principal, ref, { sandbox } = {}) =>
      showSnapshot(await resolve(principal, ref, sandbox)),

    async removeSnapshot(principal, ref, { sandbox } = {}) {
      await registry.drop(await resolve(principal, ref, sandbox), principal, 'request');
    },

    async exportSnapshot(principal, ref, { sandbox, signal } = {}) {
      const row = await resolve(principal, ref, sandbox);
      const { store, seal } = archives;
      const data =
        !row.here && row.object !== null && store
          ? store.get(row.object, { signal })
          : requireSnapshots(backend).exportSnapshot(row.id, { signal, seal });
      await recordEvent(records, 'snapshot.exported', { id: row.sandbox, project: row.project }, principal, {
        snapshot: row.id,
      });
      return { snapshot: showSnapshot(row), data };
    },

    tree: async (principal, ref) =>
      snapshotTree(
        await lookup.find(principal, ref),
        await records.sandboxes.list({ project: principal.project }),
        await records.snapshots.list({ project: principal.project }),
      ),
  };
}
