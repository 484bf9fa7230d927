/** What earlier servers of this data directory have left: in the cluster, and on the disk. */
import type { CallScope } from '../../backend.ts';
import type { OrphanObject } from '../workloads/sweep.ts';
import type { TravelContext } from './travel-context.ts';

/**
 * Workloads that were made beside sandboxes and never became theirs, and those whose place others have taken.
 */
export async function leftBeside(
  { store, underWay, workloads }: TravelContext,
  scope: CallScope = {},
): Promise<OrphanObject[]> {
  const found = await workloads.leftOver(await store.maker(), scope);
  return found.flatMap(({ metadata: { name, uid, deletionTimestamp }, path }) =>
    underWay.has(name) || deletionTimestamp !== undefined ? [] : [{ kind: 'workload', name, uid, path }],
  );
}

/** Of sandboxes that there are no more. */
export async function forgetSpecs(
  { specs, workloads }: TravelContext,
  scope: CallScope & { dryRun?: boolean } = {},
): Promise<void> {
  if (scope.dryRun) return;
  // Read before what needs them: one that is made meanwhile is not among these.
  const known = await specs.ids();
  if (known.length === 0) return;
  const there = new Set((await workloads.list(scope)).map(({ id }) => id));
  for (const id of known) if (!there.has(id)) await specs.removeUnused(id);
}
