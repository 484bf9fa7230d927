import { isCayError, type SandboxId } from '@cay/sdk/protocol';
import { inBackground } from '../../lib/in-background.ts';
import { withoutLease } from '../../records/leases/current-lease.ts';
import type { SandboxRow } from '../../records/tables/sandbox-row.ts';
import { DISK_FULL_RETRY_MS } from '../capacity/retry-on-disk-full.ts';
import { unrecordedOnFullDisk } from '../capacity/unrecorded.ts';
import type { Core } from '../core.ts';
import type { SnapshotRegistry } from '../snapshots/snapshot-registry.ts';
import type { Principal } from '../tenants/principal.ts';
import type { Expiry } from './expiry.ts';

export interface SandboxDestroyer {
  /**
   * Records the intent, removes the sandbox from its backend, deletes the record. A removal that fails is
   * tried again later. Call this from the sandbox's queue.
   */
  destroy(
    row: SandboxRow,
    principal: Principal | undefined,
    cause: string,
    options?: { onIntent?(): void },
  ): Promise<void>;
}

/** A failed removal is tried again after this, if no caller does so before. */
export const REMOVE_RETRY_MS = 30_000;

export function openDestroyer(
  core: Pick<
    Core,
    | 'activity'
    | 'backend'
    | 'clock'
    | 'closing'
    | 'commandLimit'
    | 'networks'
    | 'onError'
    | 'operations'
    | 'recordEvent'
    | 'records'
  > & { expiry: Expiry; snapshots: Pick<SnapshotRegistry, 'dropAbandoned'> },
): SandboxDestroyer {
  const { activity, backend, clock, closing, commandLimit, expiry, onError, operations, recordEvent } = core;
  const { records } = core;
  const { sandboxes } = records;

  /** Schedules another attempt, as a timeout in the record: it outlives the server. */
  async function scheduleRetry(id: SandboxId, failure: unknown): Promise<void> {
    const delayMs = isCayError(failure, 'resource_exhausted') ? DISK_FULL_RETRY_MS : REMOVE_RETRY_MS;
    try {
      await sandboxes.update(id, { state: 'destroying', expiresAtMs: clock.now() + delayMs });
      expiry.changed();
    } catch (error) {
      // The caller gets the first failure. On a full disk the time cannot be recorded either.
      onError(error);
      // `destroy` schedules the attempt after this one, so this one is not repeated.
      setTimeout(() => inBackground(removeAgain(id), onError), DISK_FULL_RETRY_MS).unref();
    }
  }

  function removeAgain(id: SandboxId): Promise<void> {
    return operations.enqueue(id, async () => {
      const row = closing.aborted ? undefined : await sandboxes.get(id);
      const begun = row && (row.state === 'destroying' || (await backend.observe(id)).phase === 'absent');
      if (begun) await destroyer.destroy(row, undefined, 'recovery');
    });
  }

  /**
   * Forgets what the server keeps in memory for it, then removes the snapshots that nothing needs any more.
   */
  async function cleanUp(row: SandboxRow): Promise<void> {
    activity.forget(row.id);
    commandLimit.forget(row.id);
    core.networks.forget(row.id);
    await core.snapshots.dropAbandoned(row);
  }

  const destroyer: SandboxDestroyer = {
    async destroy(row, principal, cause, { onIntent } = {}) {
      try {
        await sandboxes.update(row.id, { state: 'destroying', expiresAtMs: null });
        onIntent?.();
      } catch (error) {
        // A full disk must not prevent a removal. After a crash before the row is deleted, recovery finds a
        // record of a sandbox that its backend does not have, and records it as failed.
        if (!isCayError(error, 'resource_exhausted')) throw error;
      }
      try {
        await backend.remove(row.id);
      } catch (error) {
        await scheduleRetry(row.id, error);
        throw error;
      }
      try {
        await records.transaction(async (tx) => {
          await tx.sandboxes.delete(row.id);
          await recordEvent(tx, 'sandbox.removed', row, principal, { cause });
        });
      } catch (error) {
        await scheduleRetry(row.id, error);
        throw unrecordedOnFullDisk(error, `Sandbox "${row.id}" has been removed`);
      }
      await withoutLease(() => cleanUp(row)).catch(onError);
    },
  };
  return destroyer;
}
