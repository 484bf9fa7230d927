/** What is recorded of a rollback; `rollback.ts` has its steps. */
import { newId, type SandboxId, type SnapshotId } from '@cay/sdk/protocol';
import type { Observation } from '../../backends/backend.ts';
import type { RollbackOperation, SandboxRow } from '../../records/tables/sandbox-row.ts';
import type { SnapshotRow } from '../../records/tables/snapshot-row.ts';
import { retryOnDiskFull } from '../capacity/retry-on-disk-full.ts';
import type { Core } from '../core.ts';
import type { StateRecorder } from '../sandboxes/record-state.ts';
import type { Principal } from '../tenants/principal.ts';
import type { SnapshotRegistry } from './snapshot-registry.ts';

export function rollbackRecords({
  onError,
  recordEvent,
  records,
  registry,
  state,
}: Pick<Core, 'onError' | 'recordEvent' | 'records'> & {
  registry: SnapshotRegistry;
  state: StateRecorder;
}) {
  const { sandboxes, snapshots } = records;

  /** Step 1. */
  async function recordIntent(
    id: SandboxId,
    target: SnapshotRow,
    memory: boolean,
  ): Promise<RollbackOperation> {
    const operation: RollbackOperation = { kind: 'rollback', to: target.id, memory, kept: newId('snap') };
    await sandboxes.update(id, { operation });
    return operation;
  }

  /** Step 4. */
  function recordResult(
    id: SandboxId,
    { to, kept, memory }: RollbackOperation,
    observed: Observation,
    { principal, cause }: { principal?: Principal; cause?: string } = {},
  ): Promise<SandboxRow> {
    return records.transaction(async (tx) => {
      const row = await tx.sandboxes.update(id, { base: to, operation: null });
      const after = await state.within(tx).asObserved(row, observed);
      const data = { to, kept, memory, ...(cause !== undefined && { cause }) };
      await recordEvent(tx, 'sandbox.rolled_back', after, principal, data);
      return after;
    });
  }

  /** The sandbox is as it was: deletes the intent, and the snapshot that was taken for the rollback. */
  async function giveUp(id: SandboxId, operation: RollbackOperation): Promise<void> {
    const deleteIntent = () =>
      records.transaction(async (tx) => {
        if (isUnderWay(await tx.sandboxes.get(id), operation))
          await tx.sandboxes.update(id, { operation: null });
      });
    await retryOnDiskFull(deleteIntent, onError);
    await dropKept(operation.kept);
  }

  async function dropKept(id: SnapshotId): Promise<void> {
    await retryOnDiskFull(async () => {
      const kept = await snapshots.get(id);
      if (kept?.state === 'kept') await registry.drop(kept, undefined, 'rollback failed');
    }, onError);
  }

  return { recordIntent, recordResult, giveUp, dropKept };
}

export function isUnderWay(row: SandboxRow | undefined, { kept }: RollbackOperation): boolean {
  return row?.operation?.kind === 'rollback' && row.operation.kept === kept;
}
