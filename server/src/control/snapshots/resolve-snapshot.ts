import { CayError, type SandboxId, type SnapshotRef } from '@cay/sdk/protocol';
import type { SnapshotRow } from '../../records/tables/snapshot-row.ts';
import type { SnapshotRecords } from '../../records/tables/snapshots.ts';

/** The snapshot that an id means, or a name or turn number of a sandbox. Rejects `not_found`. */
export async function resolveSnapshot(
  snapshots: SnapshotRecords,
  project: string,
  ref: SnapshotRef,
  sandbox?: SandboxId,
): Promise<SnapshotRow> {
  const text = String(ref);
  const row = await lookUp(snapshots, project, text, sandbox);
  if (row?.project === project && row.state === 'kept') return row;
  const isId = text.startsWith('snap_');
  throw new CayError(
    'not_found',
    `Snapshot "${text.slice(0, 80)}"${sandbox ? ` of sandbox "${sandbox}"` : ''} does not exist`,
    !sandbox && !isId ? { hint: 'give its id, or its sandbox together with its name or turn number' } : {},
  );
}

function lookUp(
  snapshots: SnapshotRecords,
  project: string,
  ref: string,
  sandbox: SandboxId | undefined,
): Promise<SnapshotRow | undefined> {
  if (ref.startsWith('snap_')) return snapshots.get(ref);
  if (sandbox === undefined) return Promise.resolve(undefined);
  return /^[0-9]{1,15}$/.test(ref)
    ? snapshots.byTurn(project, sandbox, Number(ref))
    : snapshots.byName(project, sandbox, ref);
}
