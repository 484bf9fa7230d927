import { CompareSchema, type SandboxId, type SnapshotRef } from '@cay/sdk/protocol';
import { showSnapshot, type SnapshotRow } from '../../records/tables/snapshot-row.ts';
import type { Core } from '../core.ts';
import type { Waker } from '../pausing/wake.ts';
import type { Principal } from '../tenants/principal.ts';
import { requireSnapshots } from './require-snapshots.ts';
import type { SnapshotRegistry } from './snapshot-registry.ts';
import type { TravelVerbs } from './snapshot.ts';

/** Compares two moments of a sandbox. Now is a temporary snapshot, for as long as the comparison lasts. */
export function compareVerb({
  activity,
  backend,
  lookup,
  onError,
  operations,
  records,
  registry,
  waker,
}: Pick<Core, 'activity' | 'backend' | 'lookup' | 'onError' | 'operations' | 'records'> & {
  registry: SnapshotRegistry;
  waker: Waker;
}): Pick<TravelVerbs, 'compare'> {
  const takeTemporary = (id: SandboxId, principal: Principal) =>
    operations.claim(id, 'compare', () =>
      operations.enqueue(id, async () => {
        const row = await waker.ensureUnarchived(await lookup.reload({ id }));
        const quiet = activity.count(id, 'command') === 0;
        return registry.take(
          row,
          { cause: 'request', memory: false, quiet, becomesBase: false, temporary: true },
          principal,
        );
      }),
    );

  return {
    async compare(principal, ref, request, options) {
      const { from, to } = CompareSchema.parse(request);
      const { id, project } = await lookup.find(principal, ref);
      let temporary: SnapshotRow | undefined;

      const snapshotOf = async (side: SnapshotRef) => {
        if (side !== 'now')
          return registry.using(await registry.resolve(records, project, side, id), async (row) => row);
        return (temporary ??= await takeTemporary(id, principal));
      };
      const release = async () => {
        const { id: taken } = temporary ?? {};
        temporary = undefined;
        const row = taken && (await records.snapshots.get(taken));
        if (row) await registry.drop(row, undefined, 'compared');
      };
      const show = (row: SnapshotRow) => (row === temporary ? null : showSnapshot(row));

      try {
        const travel = requireSnapshots(backend);
        const [before, after] = [await snapshotOf(from), await snapshotOf(to)];
        return {
          from: show(before),
          to: show(after),
          changes: travel.changes(before.id, after.id, options),
          before: travel.snapshotFiles(before.id),
          after: travel.snapshotFiles(after.id),
          release,
        };
      } catch (error) {
        await release().catch(onError);
        throw error;
      }
    },
  };
}
