/** Rows of the table `snapshots`, and how they are stored. */
import type { NetworkPolicy, SandboxId, SandboxSpec, Snapshot, SnapshotId } from '@cay/sdk/protocol';
import { pick } from '../../lib/pick.ts';

/**
 * - `taking`: it may exist or not; no client has seen its id.
 * - `kept`: it exists, here or in the archive store.
 * - `passing`: it exists for one comparison, and no list shows it.
 * - `removing`: it may be gone already.
 */
export type SnapshotState = 'taking' | 'kept' | 'passing' | 'removing';

/** A snapshot as the control plane records it. */
export interface SnapshotRow {
  id: SnapshotId;
  project: string;
  sandbox: SandboxId;
  parent: SnapshotId | null;
  name: string | null;
  turn: number | null;
  cause: Snapshot['cause'];
  labels: Record<string, string>;
  memory: boolean;
  runtime: string | null;
  spec: SandboxSpec;
  quiet: boolean;
  state: SnapshotState;
  /** Whether the backend answers for it. If not it is `object` in the archive store, whole. */
  here: boolean;
  /** What it is, or may be, in the archive store. */
  object: string | null;
  /** What it takes on disk for itself, and was counted when it was taken; null if nobody knows. */
  fileBytes: number | null;
  memoryBytes: number | null;
  createdAtMs: number;
  /** The network policy of the sandbox when it was taken. */
  network: NetworkPolicy | null;
  /** What its template let the sandbox reach at most. */
  templateNetwork: NetworkPolicy | null;
}

export interface StoredSnapshot {
  id: string;
  project: string;
  sandbox: string;
  parent: string | null;
  name: string | null;
  turn: number | null;
  cause: string;
  labels: string;
  memory: number;
  runtime: string | null;
  spec: string;
  quiet: number;
  state: string;
  here: number;
  object: string | null;
  file_bytes: number | null;
  memory_bytes: number | null;
  created_at: number;
  network: string | null;
  template_network: string | null;
}

export interface SnapshotQuery {
  project?: string;
  sandbox?: string;
  labels?: Record<string, string>;
  /** Rows after this one, newest first. */
  after?: { createdAtMs: number; id: string };
  limit?: number;
}

export const SNAPSHOT_COLUMNS = {
  id: 'id',
  project: 'project',
  sandbox: 'sandbox',
  parent: 'parent',
  name: 'name',
  turn: 'turn',
  cause: 'cause',
  labels: 'labels',
  memory: 'memory',
  runtime: 'runtime',
  spec: 'spec',
  quiet: 'quiet',
  state: 'state',
  here: 'here',
  object: 'object',
  fileBytes: 'file_bytes',
  memoryBytes: 'memory_bytes',
  createdAtMs: 'created_at',
  network: 'network',
  templateNetwork: 'template_network',
} as const satisfies Record<keyof SnapshotRow, string>;

/** What is shown as it is recorded. */
const SHOWN = [
  'id',
  'sandbox',
  'project',
  'parent',
  'name',
  'turn',
  'cause',
  'labels',
  'memory',
  'runtime',
  'quiet',
  'createdAtMs',
] as const satisfies readonly (keyof SnapshotRow & keyof Snapshot)[];

export function showSnapshot(row: SnapshotRow): Snapshot {
  const { spec, here, fileBytes, memoryBytes } = row;
  return {
    ...pick(row, SHOWN),
    template: spec.template,
    archived: !here,
    bytes: fileBytes === null && memoryBytes === null ? null : (fileBytes ?? 0) + (memoryBytes ?? 0),
  };
}

export function parseSnapshot(
  row: StoredSnapshot,
  spec: SandboxSpec,
  { network, templateNetwork }: Pick<SnapshotRow, 'network' | 'templateNetwork'>,
): SnapshotRow {
  return {
    id: row.id as SnapshotId,
    project: row.project,
    sandbox: row.sandbox as SandboxId,
    parent: row.parent as SnapshotId | null,
    name: row.name,
    turn: row.turn,
    cause: row.cause as Snapshot['cause'],
    labels: JSON.parse(row.labels) as Record<string, string>,
    memory: row.memory !== 0,
    runtime: row.runtime,
    spec,
    quiet: row.quiet !== 0,
    state: row.state as SnapshotState,
    here: row.here !== 0,
    object: row.object,
    fileBytes: row.file_bytes,
    memoryBytes: row.memory_bytes,
    createdAtMs: row.created_at,
    network,
    templateNetwork,
  };
}
