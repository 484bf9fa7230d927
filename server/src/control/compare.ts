import { CompareSchema, type SnapshotRef } from '@cay/sdk/protocol';
import { snapshotting, type Context } from './context.ts';
import type { TravelVerbs } from './contract.ts';
import type { Keeping } from './keeping.ts';
import type { Pausing } from './pause.ts';
import { showSnapshot, type SnapshotRow } from './records/snapshots.ts';

/** Compares moments of a sandbox. What is there now is kept for as long as the comparison lasts. */
export function compareVerb(
  context: Context,
  keeping: Keeping,
  pausing: Pausing,
): Pick<TravelVerbs, 'compare'> {
  const { activity, deeds, find, snapshots } = context;
  return {
    async compare(principal, ref, request, options) {
      const { from, to } = CompareSchema.parse(request);
      const { id, project } = find(principal, ref);
      let passing: SnapshotRow | undefined;

      const now = () =>
        deeds.declare(id, 'compare', () =>
          deeds.run(id, async () => {
            const row = await pausing.present(context.again({ id }));
            const quiet = activity.count(id, 'command') === 0;
            return keeping.take(
              row,
              { cause: 'request', memory: false, quiet, stands: false, passing: true },
              principal,
            );
          }),
        );
      const side = async (which: SnapshotRef) => {
        if (which !== 'now') return keeping.using(keeping.resolve(project, which, id), async (row) => row);
        return (passing ??= await now());
      };
      const release = async () => {
        if (!passing) return;
        const row = snapshots.get(passing.id);
        passing = undefined;
        if (row) await keeping.drop(row, undefined, 'compared');
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
