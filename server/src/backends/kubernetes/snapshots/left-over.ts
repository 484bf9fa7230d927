/** What earlier servers of this data directory have left: in the cluster, and on the disk. */
import type { CallScope } from '../../backend.ts';
import type { OrphanObject } from '../workloads/sweep.ts';
import type { TravelContext } from './travel-context.ts';

/** Workloads that were made beside sandboxes and never adopted, and those that another one has superseded. */
export async function leftBeside(
  { store, underWay, workloads }: TravelContext,
  scope: CallScope = {},
): Promise<OrphanObject[]> {
  const found = await workloads.leftOver(await store.maker(), scope);
  return found.flatMap(({ metadata: { name, uid, deletionTimestamp }, path }) =>
    underWay.has(name) || deletionTimestamp !== undefined ? [] : [{ kind: 'workload', name, uid, path }],
  );
}

/** Removes the specs of sandboxes that do not exist any more. */
export async function forgetSpecs(
  { specs, workloads }: TravelContext,
  scope: CallScope & { dryRun?: boolean } = {},
): Promise<void> {
  if (scope.dryRun) return;
  // Specs are listed before sandboxes: the spec of a sandbox that is made in between is not in the list.
  const known = await specs.ids();
  if (known.length === 0) return;
  const there = new Set((await workloads.list(scope)).map(({ id }) => id));
  for (const id of known) if (!there.has(id)) await specs.removeUnused(id);
}
