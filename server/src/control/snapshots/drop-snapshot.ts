/**
 * Removes a snapshot: records it as `removing`, removes it from the backend and the archive store, deletes
 * the record. A record that is still `removing` after a crash is removed by the next server.
 */
import { CayError, isCayError } from '@cay/sdk/protocol';
import { faultPoint } from '../../lib/fault-point.ts';
import type { SandboxRow } from '../../records/tables/sandbox-row.ts';
import type { SnapshotRow } from '../../records/tables/snapshot-row.ts';
import type { Tables } from '../../records/tables/tables.ts';
import type { EventAppender } from '../../records/events/events.ts';
import { retry } from '../../lib/retry.ts';
import { DISK_FULL_RETRY_MS } from '../capacity/retry-on-disk-full.ts';
import type { Core } from '../core.ts';
import type { SandboxMaker } from '../sandboxes/make-sandbox.ts';
import type { Principal } from '../tenants/principal.ts';
import type { SnapshotFetcher } from './fetch-snapshot.ts';
import type { Pins } from './pins.ts';
import { requireSnapshots } from './require-snapshots.ts';

/**
 * Rejects `failed_precondition` while a template or an archived sandbox needs it, `conflict` while a sandbox
 * is being made of it.
 */
export type DropSnapshot = (
  row: SnapshotRow,
  principal: Principal | undefined,
  cause: string,
) => Promise<void>;

export function dropSnapshot({
  backend,
  onError,
  recordEvent,
  records,
  fetcher,
  maker,
  pins,
}: Pick<Core, 'backend' | 'onError' | 'recordEvent' | 'records'> & {
  fetcher: SnapshotFetcher;
  maker: Pick<SandboxMaker, 'making'>;
  pins: Pins;
}): DropSnapshot {
  async function requireUnneeded(on: Tables, row: SnapshotRow): Promise<void> {
    const [template] = await on.templates.of(row.id);
    if (template) {
      throw new CayError(
        'failed_precondition',
        `Cannot remove snapshot "${row.id}": template "${template.name}" is made of it`,
        { details: { template: template.name }, hint: 'remove the template first' },
      );
    }
    const based = await on.sandboxes.basedOn(row.id);
    // An archived sandbox has nothing but this snapshot.
    const archived = based.filter(({ pausedAs }) => pausedAs === 'archived').map(({ id }) => id);
    if (archived.length > 0) {
      throw new CayError(
        'failed_precondition',
        `Cannot remove snapshot "${row.id}": sandbox "${archived[0]}" is archived in it`,
        { details: { sandboxes: archived }, hint: 'resume that sandbox first' },
      );
    }
    if (pins.isPinned(row.id) || based.some(isBeingMade)) throw inUse(row);
  }

  /**
   * Records the intent. A user of a snapshot pins it first and then reads that it is kept, so this call sees
   * the pin, or the user sees the intent.
   */
  async function recordRemoving(row: SnapshotRow): Promise<void> {
    await records.transaction(async (tx) => {
      await requireUnneeded(tx, row);
      await tx.snapshots.update(row.id, { state: 'removing' });
    });
    if (!pins.isPinned(row.id)) return;
    await reinstate(row);
    throw inUse(row);
  }

  const isBeingMade = ({ id, state }: SandboxRow) => state === 'creating' || maker.making(id) !== undefined;

  /** Whether a removal that failed has removed nothing. */
  async function isWhole({ id, here, object }: SnapshotRow): Promise<boolean> {
    if (object !== null || !here) return false;
    return (await requireSnapshots(backend).snapshots()).some((snapshot) => snapshot.id === id);
  }

  /** Takes the removal back. Resolves whether that is recorded; if not, it will be as soon as possible. */
  async function reinstate({ id, state }: SnapshotRow): Promise<boolean> {
    let done = false;
    await retry(
      async () => {
        await records.transaction(async (tx) => {
          if ((await tx.snapshots.get(id))?.state === 'removing') await tx.snapshots.update(id, { state });
        });
        done = true;
      },
      { isTransient: () => true, onError, delayMs: DISK_FULL_RETRY_MS },
    );
    return done;
  }

  /** Throws `error`, in a way that says whether the snapshot is still there. */
  async function refuse(row: SnapshotRow, error: unknown): Promise<never> {
    const full = isCayError(error, 'resource_exhausted');
    const stays = isCayError(error, 'failed_precondition') || (full && (await isWhole(row)));
    if ((stays && (await reinstate(row))) || !full) throw error;
    throw new CayError('unavailable', `Snapshot "${row.id}" has been removed in part: the disk is full`, {
      cause: error,
    });
  }

  return async (row, principal, cause) => {
    await recordRemoving(row);
    try {
      await faultPoint('control.remove_snapshot.recorded');
      if (row.here) await requireSnapshots(backend).removeSnapshot(row.id);
      await fetcher.removeObject(row);
      await faultPoint('control.remove_snapshot.done');
    } catch (error) {
      await refuse(row, error);
    }
    const onRemoved = async (on: { readonly events: EventAppender }) => {
      const { id: snapshot, sandbox: id, project, state } = row;
      if (state === 'kept')
        await recordEvent(on, 'snapshot.removed', { id, project }, principal, { snapshot, cause });
    };
    try {
      await records.transaction(async (tx) => {
        await tx.snapshots.delete(row.id);
        await onRemoved(tx);
      });
    } catch (error) {
      // It is recorded as `removing`, so no caller sees it, and the next server deletes the record.
      onError(error);
      await onRemoved(records);
    }
  };
}

function inUse({ id }: SnapshotRow): CayError {
  return new CayError(
    'conflict',
    `Cannot remove snapshot "${id}": a sandbox is being made of it, or it is being copied`,
    { hint: 'try again when that is done' },
  );
}
