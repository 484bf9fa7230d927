/** The steps of a move; `move-sandbox.ts` says in which order, and what a failure between them leaves. */
import { isCayError, type SandboxId, type SnapshotId } from '@cay/sdk/protocol';
import { faultPoint } from '../../lib/fault-point.ts';
import type { SandboxRow } from '../../records/tables/sandbox-row.ts';
import type { Core } from '../core.ts';
import type { StateRecorder } from '../sandboxes/record-state.ts';
import { scopeOf } from '../sandboxes/scope-of.ts';
import type { Principal } from '../tenants/principal.ts';
import type { Flight } from '../tenants/quota-ledger.ts';
import type { PlannedMove, SnapshottingPlatform } from './plan-move.ts';

type CopiedBytes = Map<SnapshotId, { fileBytes: number | null }>;

export function moveSteps({
  archives,
  onError,
  recordEvent,
  records,
  state,
}: Pick<Core, 'archives' | 'onError' | 'recordEvent' | 'records'> & { state: StateRecorder }) {
  /**
   * Copies to the other platform, the oldest first. Until the move is recorded both copies count in the
   * quota.
   */
  async function copySnapshots(
    row: SandboxRow,
    { source, target }: PlannedMove,
    ids: SnapshotId[],
    coming: Flight,
  ): Promise<CopiedBytes> {
    const bytes: CopiedBytes = new Map();
    for (const id of ids) {
      // An attempt that was cut short may have left a part.
      await target.snapshots.removeSnapshot(id);
      await faultPoint('control.move.copying');
      const archive = source.snapshots.exportSnapshot(id, { seal: archives.seal });
      const facts = await target.snapshots.importSnapshot(id, archive, {
        seal: archives.seal,
        admit: (more) => coming.add(more),
        ...scopeOf(row),
      });
      bytes.set(id, { fileBytes: facts.fileBytes ?? null });
    }
    return bytes;
  }

  /**
   * Removes what a platform has of a sandbox that is not there. Best effort: the next comparison repeats it.
   */
  async function removeFrom(
    platform: SnapshottingPlatform,
    id: SandboxId,
    ids: Iterable<SnapshotId>,
  ): Promise<void> {
    await platform.backend.remove(id).catch(onError);
    for (const snapshot of ids)
      await platform.snapshots.removeSnapshot(snapshot).catch((error: unknown) => {
        if (!isCayError(error, 'failed_precondition')) onError(error);
      });
  }

  /** In one transaction: from here on it is on the other platform. */
  function recordMoved(
    row: SandboxRow,
    { plan, spec }: PlannedMove,
    last: SnapshotId,
    copied: CopiedBytes,
    principal: Principal,
  ): Promise<SandboxRow> {
    const { from, to } = plan;
    return records.transaction(async (tx) => {
      for (const [id, { fileBytes }] of copied) {
        const snapshot = await tx.snapshots.get(id);
        if (!snapshot) continue;
        const there = { ...snapshot.spec, platform: to };
        await tx.snapshots.update(id, {
          spec: there,
          memory: false,
          runtime: null,
          fileBytes,
          memoryBytes: 0,
        });
      }
      const moved = await tx.sandboxes.update(row.id, {
        spec,
        backend: to,
        operation: null,
        base: last,
        uid: null,
        imageBytes: null,
      });
      const stopped = await state.within(tx).stopped(moved, { incarnation: 1 });
      await recordEvent(tx, 'sandbox.moved', stopped, principal, {
        from,
        to,
        lost: plan.losses.map(({ what }) => what),
      });
      return stopped;
    });
  }

  return { copySnapshots, removeFrom, recordMoved };
}
