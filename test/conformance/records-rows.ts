/** Rows for the suite of records. */
import { newId, SandboxSpecSchema, type SandboxSpec, type SnapshotId } from '@cay/sdk/protocol';
import type { Records } from '../../server/src/records/records.ts';
import type { SandboxRow } from '../../server/src/records/tables/sandbox-row.ts';
import type { SnapshotRow } from '../../server/src/records/tables/snapshot-row.ts';

export function sandboxRow(project: string, changes: Partial<SandboxRow> = {}): SandboxRow {
  return {
    id: newId('sbx'),
    project,
    name: null,
    state: 'creating',
    reason: null,
    message: null,
    backend: 'memory',
    runtime: null,
    spec: specOf(),
    labels: {},
    ports: [],
    timeoutMs: null,
    onTimeout: 'stop',
    expiresAtMs: null,
    incarnation: 1,
    uid: null,
    createdAtMs: 1000,
    startedAtMs: null,
    pausedAs: null,
    idle: null,
    leaseUntilMs: null,
    usedAtMs: null,
    retention: null,
    onBoot: 'stay',
    base: null,
    turn: 0,
    origin: null,
    operation: null,
    imageBytes: null,
    network: null,
    templateNetwork: null,
    networks: [],
    ...changes,
  };
}

export function specOf(changes: Record<string, unknown> = {}): SandboxSpec {
  return SandboxSpecSchema.parse({ template: 'base', ...changes });
}

export function snapshotRow(
  project: string,
  sandbox: SandboxRow['id'],
  changes: Partial<SnapshotRow> = {},
): SnapshotRow {
  return {
    id: newId('snap') as SnapshotId,
    project,
    sandbox,
    parent: null,
    name: null,
    turn: null,
    cause: 'request',
    labels: {},
    memory: false,
    runtime: null,
    spec: specOf(),
    quiet: false,
    state: 'kept',
    here: true,
    object: null,
    fileBytes: null,
    memoryBytes: null,
    createdAtMs: 1000,
    network: null,
    templateNetwork: null,
    ...changes,
  };
}

export async function projectOf(records: Records, name = 'p'): Promise<string> {
  return (await records.projects.create(name)).id;
}
