import type { SandboxRow } from '../../records/tables/sandbox-row.ts';
import type { SnapshotRow } from '../../records/tables/snapshot-row.ts';
import type { Tables } from '../../records/tables/tables.ts';

/**
 * Its snapshots, of one platform or of all, without those that another sandbox or a template needs where they
 * are.
 */
export async function movableSnapshots(
  on: Tables,
  row: Pick<SandboxRow, 'id' | 'project'>,
  from?: string,
): Promise<SnapshotRow[]> {
  const found: SnapshotRow[] = [];
  for (const snapshot of await on.snapshots.list({ sandbox: row.id, project: row.project })) {
    const { id, here, spec } = snapshot;
    // One that has stayed elsewhere when the sandbox moved is no part of another move.
    if (from !== undefined && (spec.platform ?? from) !== from) continue;
    if (!here || (await on.templates.of(id)).length > 0) continue;
    if ((await on.sandboxes.basedOn(id)).every((other) => other.id === row.id)) found.push(snapshot);
  }
  return found;
}
