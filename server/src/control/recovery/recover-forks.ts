/** Finishes or removes forks that an earlier server had begun. */
import type { Core } from '../core.ts';
import type { ForkChildren } from '../snapshots/fork-children.ts';

/**
 * Removes the children of forks that no caller can repeat. Call this before the sandboxes are recovered,
 * which would make the children.
 */
export async function undoForks({
  backend,
  onError,
  records: { forks, sandboxes },
  forkChildren,
}: Pick<Core, 'backend' | 'onError' | 'records'> & { forkChildren: ForkChildren }): Promise<void> {
  for (const fork of forks.unmade()) {
    if (fork.keyed && fork.children.length > 0) continue;
    for (const id of fork.children) {
      await backend.remove(id).catch(onError);
      sandboxes.delete(id);
    }
    forkChildren.restoreBase(fork);
    forks.delete(fork.id);
  }
}

/** Waits in the background for the children that recovery makes, and records that the fork is done. */
export function finishForks({
  onError,
  records: { forks },
  forkChildren,
}: Pick<Core, 'onError' | 'records'> & { forkChildren: ForkChildren }): void {
  for (const fork of forks.unmade()) forkChildren.make(fork).catch(onError);
}
