/**
 * Takes a snapshot: records it as `taking`, has the backend take it, records it as `kept`. A record that is
 * still `taking` after a crash is removed together with what the backend has of it.
 */
import { CayError, isCayError, newId, type Snapshot, type SnapshotId } from '@cay/sdk/protocol';
import { faultPoint } from '../../lib/fault-point.ts';
import type { Transaction } from '../../records/records.ts';
import type { SandboxRow } from '../../records/tables/sandbox-row.ts';
import type { SnapshotRow } from '../../records/tables/snapshot-row.ts';
import type { Core } from '../core.ts';
import type { Principal } from '../tenants/principal.ts';
import { imageEstimate } from './image-estimate.ts';
import { newSnapshotRow } from './new-snapshot-row.ts';
import { requireSnapshots } from './require-snapshots.ts';
import { snapshotQuota } from './snapshot-quota.ts';

export interface SnapshotRequest {
  id?: SnapshotId;
  cause: Snapshot['cause'];
  name?: string;
  labels?: Record<string, string>;
  /** `if possible`: with memory if the sandbox has processes and its runtime can, else without. */
  memory: boolean | 'if possible';
  /** Whether no command that a client waits for was running. */
  quiet: boolean;
  /** Gives it the sandbox's next turn number. */
  numbered?: boolean;
  /** It exists for one comparison: no listing shows it, no quota counts it. */
  temporary?: boolean;
  /** It becomes the sandbox's base: the parent of the next snapshot. */
  becomesBase: boolean;
}

/** Call this from the sandbox's queue. */
export type TakeSnapshot = (
  row: SandboxRow,
  request: SnapshotRequest,
  principal: Principal | undefined,
) => Promise<SnapshotRow>;

export function takeSnapshot(
  core: Pick<
    Core,
    | 'activity'
    | 'backend'
    | 'capabilities'
    | 'clock'
    | 'onError'
    | 'pressure'
    | 'quota'
    | 'recordEvent'
    | 'records'
  >,
): TakeSnapshot {
  const { activity, backend, clock, onError, pressure, quota, recordEvent, records } = core;
  const admitBytes = snapshotQuota(core);

  /** An archived sandbox is counted already, and a temporary snapshot is gone soon. */
  const isCounted = ({ cause, temporary }: SnapshotRequest) => cause !== 'archive' && !temporary;

  async function recordTaking(row: SandboxRow, id: SnapshotId, request: SnapshotRequest): Promise<void> {
    await records.transaction(async (tx) => {
      if (isCounted(request)) {
        await quota.requireRoom(tx, row.project, 'snapshots', 1);
        // A rollback is let through on a full disk: it may be what makes room.
        if (request.cause !== 'rollback')
          await pressure.admit(
            { memoryBytes: null, diskBytes: null },
            { starts: false, platform: row.spec.platform, tx },
          );
      }
      const turn = request.numbered ? await nextTurn(tx, row) : null;
      const { project, base: parent, spec, network, templateNetwork } = row;
      const { cause, name, labels, quiet } = request;
      const createdAtMs = clock.now();
      await tx.snapshots.insert(
        newSnapshotRow({
          id,
          project,
          sandbox: row.id,
          parent,
          spec,
          network,
          templateNetwork,
          turn,
          cause,
          name,
          labels,
          quiet,
          createdAtMs,
        }),
      );
      // A turn number is used up even if the snapshot fails.
      if (turn !== null) await tx.sandboxes.update(row.id, { turn });
    });
  }

  async function nextTurn(tx: Transaction, { id }: SandboxRow): Promise<number> {
    const row = await tx.sandboxes.get(id);
    if (!row) throw new CayError('not_found', `Sandbox "${id}" does not exist`);
    return row.turn + 1;
  }

  async function capture(row: SandboxRow, id: SnapshotId, memory: SnapshotRequest['memory']) {
    const travel = requireSnapshots(backend);
    const hasMemory = row.state === 'active' || row.pausedAs === 'hibernated';
    if (memory !== 'if possible' || !hasMemory)
      return travel.snapshot(row.id, id, { memory: memory === true });
    try {
      return await travel.snapshot(row.id, id, { memory: true });
    } catch (error) {
      if (!isCayError(error, 'unsupported')) throw error;
      return travel.snapshot(row.id, id);
    }
  }

  async function recordTaken(
    tx: Transaction,
    row: SandboxRow,
    id: SnapshotId,
    request: SnapshotRequest,
    facts: Awaited<ReturnType<typeof capture>>,
    principal: Principal | undefined,
  ): Promise<SnapshotRow> {
    if (request.becomesBase) await tx.sandboxes.update(row.id, { base: id });
    const taken = await tx.snapshots.update(id, {
      state: request.temporary ? 'passing' : 'kept',
      memory: facts.memory,
      fileBytes: facts.fileBytes ?? null,
      memoryBytes: facts.memoryBytes ?? null,
      runtime: facts.memory ? (facts.runtime ?? row.runtime) : null,
    });
    const { turn, name, cause, memory } = taken;
    if (!request.temporary)
      await recordEvent(tx, 'snapshot.taken', row, principal, {
        snapshot: id,
        cause,
        memory,
        ...(turn !== null && { turn }),
        ...(name !== null && { name }),
      });
    return taken;
  }

  /** If this fails, the next server does it. */
  async function undo(id: SnapshotId): Promise<void> {
    try {
      await requireSnapshots(backend).removeSnapshot(id);
      await records.snapshots.delete(id);
    } catch (error) {
      onError(error);
    }
  }

  return async (row, request, principal) => {
    const { id = newId('snap'), memory } = request;
    const { project } = row;
    requireSnapshots(backend);
    using reserved = quota.begin(project, 'underWay', isCounted(request) ? ['snapshotBytes'] : []);
    const estimate = await imageEstimate(core, row, memory);
    await admitBytes(project, () => reserved.add(estimate));
    await recordTaking(row, id, request);
    try {
      await faultPoint('control.snapshot.recorded');
      const facts = await capture(row, id, memory);
      await faultPoint('control.snapshot.taken');
      const bytes = (facts.fileBytes ?? 0) + (facts.memoryBytes ?? 0);
      // What was reserved is replaced by what it has become.
      const taken = await admitBytes(project, () =>
        records.transaction(async (tx) => {
          if (isCounted(request))
            await quota.requireRoom(tx, project, 'snapshotBytes', bytes, { without: reserved });
          return recordTaken(tx, row, id, request, facts, principal);
        }),
      );
      // Archiving is not a use of the sandbox.
      if (request.cause !== 'archive') activity.touch(row.id);
      return taken;
    } catch (error) {
      await undo(id);
      throw error;
    }
  };
}
