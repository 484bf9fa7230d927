/**
 * Puts a sandbox back to one of its snapshots, in these steps:
 *
 * 1. the intent is recorded: the target, and the id of the snapshot that keeps what the sandbox is now
 * 2. that snapshot is taken
 * 3. the backend rolls back
 * 4. one transaction records the result and deletes the intent
 *
 * A server that finds the intent after a crash compares incarnations: another one than recorded means that
 * step 3 was done. A failure at any step leaves the sandbox as it was.
 */
import {
  CayError,
  RollbackSchema,
  isCayError,
  type Rollback,
  type RolledBack,
  type SandboxId,
  type SnapshotId,
} from '@cay/sdk/protocol';
import type { Observation } from '../../backends/backend.ts';
import { faultPoint } from '../../lib/fault-point.ts';
import { retry } from '../../lib/retry.ts';
import type { RollbackOperation, SandboxRow } from '../../records/tables/sandbox-row.ts';
import { showSnapshot } from '../../records/tables/snapshot-row.ts';
import { DISK_FULL_RETRY_MS } from '../capacity/retry-on-disk-full.ts';
import type { Core } from '../core.ts';
import type { Waker } from '../pausing/wake.ts';
import type { Settler } from '../recovery/settle-sandbox.ts';
import type { StateRecorder } from '../sandboxes/record-state.ts';
import type { Principal } from '../tenants/principal.ts';
import { withMemoryHint } from './memory-errors.ts';
import { isUnderWay, rollbackRecords } from './rollback-records.ts';
import { requireSnapshots } from './require-snapshots.ts';
import type { Retaining } from './retention.ts';
import type { SnapshotRegistry } from './snapshot-registry.ts';
import type { TravelVerbs } from './snapshot.ts';

export interface RollingBack extends Pick<TravelVerbs, 'rollback'> {
  /**
   * Finishes a rollback that an earlier server recorded, or gives it up. Call this from the sandbox's queue.
   */
  finish(row: SandboxRow, operation: RollbackOperation, observed: Observation): Promise<void>;
}

/** `details.reason` of a rollback that was done and cannot be recorded yet. */
const UNRECORDED = 'unrecorded';

export function openRollingBack({
  activity,
  backend,
  drainLogs,
  lookup,
  onError,
  operations,
  recordEvent,
  records,
  registry,
  retention,
  settler,
  state,
  waker,
}: Pick<
  Core,
  'activity' | 'backend' | 'drainLogs' | 'lookup' | 'onError' | 'operations' | 'recordEvent' | 'records'
> & {
  registry: SnapshotRegistry;
  retention: Retaining;
  settler: Settler;
  state: StateRecorder;
  waker: Waker;
}): RollingBack {
  const { sandboxes, snapshots } = records;
  const { recordIntent, recordResult, giveUp, dropKept } = rollbackRecords({
    onError,
    recordEvent,
    records,
    registry,
    state,
  });

  /** Step 2. */
  async function keepCurrent(row: SandboxRow, id: SnapshotId, principal: Principal): Promise<void> {
    if (row.state === 'active') await drainLogs(row.id).catch(onError);
    const quiet = activity.count(row.id, 'command') === 0;
    await registry.take(
      row,
      { id, cause: 'rollback', memory: 'if possible', quiet, becomesBase: false },
      principal,
    );
    await faultPoint('control.rollback.recorded');
  }

  /** Steps 3 and 4. A result that cannot be recorded is undone. */
  async function goBack(
    row: SandboxRow,
    operation: RollbackOperation,
    principal: Principal,
  ): Promise<SandboxRow> {
    const travel = requireSnapshots(backend);
    const observed = await travel.rollback(row.id, operation.to, { memory: operation.memory });
    try {
      await faultPoint('control.rollback.done');
      return await recordResult(row.id, operation, observed, { principal });
    } catch (error) {
      const kept = await snapshots.get(operation.kept);
      if (!kept) throw error;
      const undone = await travel.rollback(row.id, kept.id, { memory: kept.memory }).catch(onError);
      if (!undone) throw recordResultLater(row.id, operation, observed, error);
      await state.asObserved(await lookup.reload(row), undone);
      throw error;
    }
  }

  /**
   * The rollback can be neither recorded nor undone. It is recorded in the background, or by the next server.
   */
  function recordResultLater(
    id: SandboxId,
    operation: RollbackOperation,
    observed: Observation,
    cause: unknown,
  ): CayError {
    const record = () =>
      operations.enqueue(id, async () => {
        if (isUnderWay(await sandboxes.get(id), operation)) await recordResult(id, operation, observed);
      });
    const delayMs = DISK_FULL_RETRY_MS;
    retry(record, { isTransient: () => true, onError, delayMs, firstDelayMs: delayMs }).catch(onError);
    return new CayError(
      'unavailable',
      `Sandbox "${id}" has been rolled back to "${operation.to}", which cannot be recorded yet`,
      { details: { reason: UNRECORDED, kept: operation.kept }, cause },
    );
  }

  /** In the sandbox's queue, with its gate closed. */
  async function rollBack(
    id: SandboxId,
    { to, memory }: Required<Rollback>,
    principal: Principal,
  ): Promise<RolledBack> {
    const row = await waker.ensureAwake(await lookup.reload({ id }));
    const target = await registry.resolve(records, row.project, to, id);
    return registry.using(target, async () => {
      const operation = await recordIntent(id, target, memory);
      try {
        await keepCurrent(row, operation.kept, principal);
        const after = await goBack(row, operation, principal);
        retention.changed(id);
        const kept = (await snapshots.get(operation.kept))!;
        return { sandbox: await lookup.show(after), kept: showSnapshot(kept) };
      } catch (error) {
        if (isCayError(error) && error.details['reason'] === UNRECORDED) throw error;
        await giveUp(id, operation);
        throw withMemoryHint(error);
      }
    });
  }

  return {
    async rollback(principal, ref, request, { check } = {}) {
      const parsed = RollbackSchema.parse(request);
      const { id } = await lookup.find(principal, ref);
      check?.(id);
      const inQueue = () => operations.enqueue(id, () => rollBack(id, parsed, principal));
      return operations.claim(id, 'rollback', () => activity.withGateClosed(id, inQueue));
    },

    async finish(row, operation, observed) {
      const isKept = (await snapshots.get(operation.kept))?.state === 'kept';
      if (isKept && observed.incarnation !== row.incarnation) {
        await recordResult(row.id, operation, observed, { cause: 'recovery' });
        return;
      }
      // It was not done, and is not done now: its caller may have got an error, from a server whose disk was
      // too full to delete the intent, and may have written to the sandbox since.
      await settler.settle(await sandboxes.update(row.id, { operation: null }), observed);
      // Not every backend counts incarnations of a sandbox without processes, so only a running one proves
      // that the kept snapshot is of no use.
      if (isKept && observed.phase === 'ready') await dropKept(operation.kept);
    },
  };
}
