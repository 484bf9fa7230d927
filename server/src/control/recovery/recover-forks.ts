/** Finishes or removes forks that an earlier server had begun. */
import type { ForkRow } from '../../records/tables/forks.ts';
import type { Core } from '../core.ts';
import type { ForkChildren } from '../snapshots/fork-children.ts';

/**
 * Removes the children of forks that no caller can repeat. Call this before the sandboxes are recovered,
 * which would make the children. Resolves the forks to finish after that. Forks that another server works on
 * are left to that server.
 */
export async function undoForks({
  backend,
  onError,
  records: { forks, leases, sandboxes, snapshots },
  forkChildren,
}: Pick<Core, 'backend' | 'onError' | 'records'> & { forkChildren: ForkChildren }): Promise<ForkRow[]> {
  const repeatable: ForkRow[] = [];
  for (const fork of await forks.unmade()) {
    if (await isUnderWay(fork)) continue;
    if (fork.keyed && fork.children.length > 0) {
      repeatable.push(fork);
      continue;
    }
    for (const id of fork.children) {
      await backend.remove(id).catch(onError);
      await sandboxes.delete(id);
    }
    await forkChildren.restoreBase(fork);
    await forks.delete(fork.id);
  }
  return repeatable;

  /**
   * Whether another server works on it: that server holds the lease of the parent from before the capture to
   * the end.
   */
  async function isUnderWay({ snapshot, children }: ForkRow): Promise<boolean> {
    const parent = (await snapshots.get(snapshot))?.sandbox;
    for (const id of parent === undefined ? children : [parent, ...children])
      if (await leases.isHeld(id)) return true;
    return false;
  }
}

/** Waits in the background for the children that recovery makes, and records that the fork is done. */
export function finishForks(
  { onError, forkChildren }: Pick<Core, 'onError'> & { forkChildren: ForkChildren },
  forks: readonly ForkRow[],
): void {
  for (const fork of forks) forkChildren.make(fork).catch(onError);
}
