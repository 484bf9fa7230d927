import type { SnapshotRow } from '../../records/tables/snapshot-row.ts';

type Given = Pick<
  SnapshotRow,
  | 'id'
  | 'project'
  | 'sandbox'
  | 'parent'
  | 'cause'
  | 'spec'
  | 'quiet'
  | 'createdAtMs'
  | 'network'
  | 'templateNetwork'
> & { turn?: number | null; name?: string | undefined; labels?: Record<string, string> | undefined };

/** The record of a snapshot before the backend has taken or imported it. */
export function newSnapshotRow({ turn = null, name, labels = {}, ...given }: Given): SnapshotRow {
  return {
    ...given,
    turn,
    name: name ?? null,
    labels,
    memory: false,
    runtime: null,
    state: 'taking',
    here: true,
    object: null,
    fileBytes: null,
    memoryBytes: null,
  };
}
