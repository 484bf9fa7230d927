/**
 * Puts a sandbox back to one of its snapshots. What it was is kept first, so that nothing is lost whatever
 * happens next; then the intent is recorded, and a server that finds it after a crash sees whether it was
 * done.
 */
import {
  CayError,
  RollbackSchema,
  isCayError,
  newId,
  type SandboxId,
  type SnapshotId,
} from '@cay/sdk/protocol';
import type { Observation } from '../../backends/backend.ts';
import { faultPoint } from '../../lib/fault-point.ts';
import { withHint } from '../pausing/archive.ts';
import { snapshotting, type Context } from '../context.ts';
import type { TravelVerbs } from './snapshot.ts';
import type { SnapshotRegistry } from './snapshot-registry.ts';
import type { Pausing } from '../pausing/pausing.ts';
import type { Principal } from '../tenants/principal.ts';
import type { RollbackOperation, SandboxRow } from '../../records/sandboxes.ts';
import { showSnapshot } from '../../records/snapshots.ts';
import { retryOnDiskFull } from '../capacity/retry-on-disk-full.ts';

export interface RollingBack extends Pick<TravelVerbs, 'rollback'> {
  /**
   * In line: finishes a rollback that was recorded. Resolves the sandbox as it is then, rolled back or as it
   * was.
   */
  finish(row: SandboxRow, operation: RollbackOperation, observed: Observation): Promise<void>;
}

const UNRECORDED = 'unrecorded';

export function openRollingBack(
  context: Context,
  registry: SnapshotRegistry,
  pausing: Pausing,
  onRolledBack: (id: SandboxId) => void,
): RollingBack {
  const { activity, database, operations, find, lifecycle, note, onError, sandboxes, show, snapshots } =
    context;

  /** Records where the sandbox stands now. */
  function landed(
    id: SandboxId,
    operation: RollbackOperation,
    observed: Observation,
    principal?: Principal,
    cause?: string,
  ): SandboxRow {
    const { to, kept, memory } = operation;
    return database.transaction(() => {
      sandboxes.update(id, { base: to, operation: null });
      const after = lifecycle.standing(context.again({ id }), observed);
      note('sandbox.rolled_back', after, principal, {
        to,
        kept,
        memory,
        ...(cause !== undefined && { cause }),
      });
      return after;
    });
  }

  /** Goes there, or stays: a result that cannot be recorded is undone. */
  async function go(
    row: SandboxRow,
    operation: RollbackOperation,
    principal: Principal | undefined,
  ): Promise<SandboxRow> {
    const backend = snapshotting(context);
    const observed = await backend.rollback(row.id, operation.to, { memory: operation.memory });
    try {
      await faultPoint('control.rollback.done');
      return landed(row.id, operation, observed, principal);
    } catch (error) {
      const kept = snapshots.get(operation.kept);
      if (!kept) throw error;
      const back = await backend.rollback(row.id, kept.id, { memory: kept.memory }).catch(onError);
      // What cannot be undone either has happened.
      if (!back) throw landSoon(row.id, operation, observed, error);
      lifecycle.standing(context.again(row), back);
      throw error;
    }
  }

  /**
   * Records where the sandbox stands as soon as that can be done; a server that dies before sees it by the
   * operation.
   */
  function landSoon(
    id: SandboxId,
    operation: RollbackOperation,
    observed: Observation,
    cause: unknown,
  ): CayError {
    const land = async () => {
      if (!isUnderWay(sandboxes.get(id), operation)) return;
      try {
        landed(id, operation, observed);
      } catch (error) {
        landSoon(id, operation, observed, error);
      }
    };
    retryOnDiskFull(() => operations.run(id, land).catch(onError));
    return new CayError(
      'unavailable',
      `Sandbox "${id}" has been rolled back to "${operation.to}", which cannot be recorded yet`,
      {
        details: { reason: UNRECORDED, kept: operation.kept },
        cause,
      },
    );
  }

  /** Nothing comes of the operation. A server that dies before this is noted sees so itself. */
  function forget(id: SandboxId, operation: RollbackOperation): void {
    try {
      if (isUnderWay(sandboxes.get(id), operation)) sandboxes.update(id, { operation: null });
    } catch (error) {
      onError(error);
      if (isCayError(error, 'resource_exhausted')) retryOnDiskFull(() => forget(id, operation));
    }
  }

  async function dropKept(id: SnapshotId): Promise<void> {
    try {
      const kept = snapshots.get(id);
      if (kept?.state === 'kept') await registry.drop(kept, undefined, 'rollback failed');
    } catch (error) {
      onError(error);
      // A disk that was too full for the rollback is too full to note the removal, for a while.
      if (isCayError(error, 'resource_exhausted')) retryOnDiskFull(() => dropKept(id));
    }
  }

  return {
    async rollback(principal, ref, request) {
      const { to, memory } = RollbackSchema.parse(request);
      const { id, project } = find(principal, ref);
      return operations.declare(id, 'rollback', () =>
        activity.closed(id, () =>
          operations.run(id, async () => {
            const row = await pausing.present(context.again({ id }), { running: true });
            const target = registry.resolve(project, to, id);
            return registry.using(target, async () => {
              const operation: RollbackOperation = {
                kind: 'rollback',
                to: target.id,
                memory,
                kept: newId('snap'),
              };
              sandboxes.update(id, { operation });
              try {
                if (row.state === 'active') await context.drain(id).catch(onError);
                const quiet = activity.count(id, 'command') === 0;
                await registry.take(
                  row,
                  { id: operation.kept, cause: 'rollback', memory: 'if possible', quiet, stands: false },
                  principal,
                );
                await faultPoint('control.rollback.recorded');
                const after = await go(row, operation, principal);
                onRolledBack(id);
                return { sandbox: show(after), kept: showSnapshot(snapshots.get(operation.kept)!) };
              } catch (error) {
                if (error instanceof CayError && error.details['reason'] === UNRECORDED) throw error;
                // The backend has left it as it was: what was kept for the case is of no use to anybody.
                forget(id, operation);
                await dropKept(operation.kept);
                throw withHint(error);
              }
            });
          }),
        ),
      );
    },

    async finish(row, operation, observed) {
      // Nothing happens to a sandbox before what it was is kept.
      if (snapshots.get(operation.kept)?.state !== 'kept') {
        sandboxes.update(row.id, { operation: null });
        lifecycle.settle(context.again(row), observed);
        return;
      }
      // Another incarnation than the one it was recorded of: it is done already.
      if (observed.incarnation !== row.incarnation) {
        landed(row.id, operation, observed, undefined, 'recovery');
        return;
      }
      // It was never done. The caller may have been told that it cannot be, by a server whose disk was too
      // full to note that, and has written since: the sandbox stays as it is.
      sandboxes.update(row.id, { operation: null });
      lifecycle.settle(context.again(row), observed);
      // Of one that rests not every backend counts incarnations: what it may have been is kept.
      if (observed.phase === 'ready') await dropKept(operation.kept);
    },
  };
}

function isUnderWay(row: SandboxRow | undefined, { kept }: RollbackOperation): boolean {
  return row?.operation?.kind === 'rollback' && row.operation.kept === kept;
}
