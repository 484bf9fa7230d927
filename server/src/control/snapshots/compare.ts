import { CompareSchema, type SnapshotRef } from '@cay/sdk/protocol';
import { snapshotting, type Context } from '../context.ts';
import type { TravelVerbs } from './snapshot.ts';
import type { SnapshotRegistry } from './snapshot-registry.ts';
import type { Pausing } from '../pausing/pausing.ts';
import { showSnapshot, type SnapshotRow } from '../../records/snapshots.ts';

/** Compares moments of a sandbox. What is there now is kept for as long as the comparison lasts. */
export function compareVerb(
  context: Context,
  registry: SnapshotRegistry,
  pausing: Pausing,
): Pick<TravelVerbs, 'compare'> {
  const { activity, operations, find, snapshots } = context;
  return {
    async compare(principal, ref, request, options) {
      const { from, to } = CompareSchema.parse(request);
      const { id, project } = find(principal, ref);
      let passing: SnapshotRow | undefined;

      const now = () =>
        operations.declare(id, 'compare', () =>
          operations.run(id, async () => {
            const row = await pausing.present(context.again({ id }));
            const quiet = activity.count(id, 'command') === 0;
            return registry.take(
              row,
              { cause: 'request', memory: false, quiet, stands: false, passing: true },
              principal,
            );
          }),
        );
      const side = async (which: SnapshotRef) => {
        if (which !== 'now') return registry.using(registry.resolve(project, which, id), async (row) => row);
        return (passing ??= await now());
      };
      const release = async () => {
        if (!passing) return;
        const row = snapshots.get(passing.id);
        passing = undefined;
        if (row) await registry.drop(row, undefined, 'compared');
      };

      try {
        const backend = snapshotting(context);
        const [before, after] = [await side(from), await side(to)];
        return {
          from: before.state === 'passing' ? null : showSnapshot(before),
          to: after.state === 'passing' ? null : showSnapshot(after),
          changes: backend.changes(before.id, after.id, options),
          before: backend.snapshotFiles(before.id),
          after: backend.snapshotFiles(after.id),
          release,
        };
      } catch (error) {
        await release().catch(context.onError);
        throw error;
      }
    },
  };
}
