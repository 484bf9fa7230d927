/**
 * Orphan sandboxes: a backend has them and no record knows them. A sandbox is recorded before any of it is
 * made, and its record is deleted after all of it is gone, so an orphan can be removed.
 */
import type { SandboxId } from '@cay/sdk/protocol';
import type { Backend } from '../../backends/backend.ts';
import type { Core } from '../core.ts';
import { survey } from '../placement/placement.ts';

export interface OrphanSandbox {
  id: SandboxId;
  /** The backend that has it. */
  platform: Backend;
}

export async function findOrphanSandboxes({
  backend,
  records: { sandboxes },
}: Pick<Core, 'backend' | 'records'>): Promise<OrphanSandbox[]> {
  const { found } = await survey(backend, (platform) => platform.list());
  const orphans: OrphanSandbox[] = [];
  for (const { it, platform } of found)
    if (!(await sandboxes.get(it.id))) orphans.push({ id: it.id, platform });
  return orphans;
}

/** In the queue of that id, where it may turn out to have a record by now. */
export async function removeOrphanSandbox(
  { operations, records: { sandboxes } }: Pick<Core, 'operations' | 'records'>,
  { id, platform }: OrphanSandbox,
): Promise<void> {
  await operations.enqueue(id, async () => {
    if (!(await sandboxes.get(id))) await platform.remove(id);
  });
}
