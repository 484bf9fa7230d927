/**
 * Writes to a sandbox's record what it has become. Each change and its event are one transaction.
 *
 * Call these from the sandbox's queue.
 */
import type { Pause } from '@cay/sdk/protocol';
import type { Observation } from '../../backends/backend.ts';
import type { RecordSet, Transaction } from '../../records/records.ts';
import type { SandboxRow } from '../../records/tables/sandbox-row.ts';
import type { SandboxRecords } from '../../records/tables/sandboxes.ts';
import type { Core } from '../core.ts';
import type { Expiry } from './expiry.ts';

/**
 * Called in the transaction that records a change, to append the event of it. The transaction may run again,
 * so it has no other effects.
 */
export type OnRecord = (changed: SandboxRow, tx: Transaction) => Promise<void>;

export interface StateRecorder {
  change(
    row: SandboxRow,
    changes: Parameters<SandboxRecords['update']>[1],
    onRecord?: OnRecord,
  ): Promise<SandboxRow>;
  /** It runs from now on. `changes` are recorded with that. */
  running(
    row: SandboxRow,
    observed: Observation,
    onRecord?: OnRecord,
    changes?: Partial<Pick<SandboxRow, 'spec'>>,
  ): Promise<SandboxRow>;
  /** It has its files and no processes. */
  stopped(row: SandboxRow, changes: Partial<SandboxRow>, onRecord?: OnRecord): Promise<SandboxRow>;
  failed(row: SandboxRow, observed: Observation): Promise<SandboxRow>;
  /** The state that the backend reports: active, paused, stopped or failed. */
  asObserved(row: SandboxRow, observed: Observation, onRecord?: OnRecord): Promise<SandboxRow>;
  /** When a sandbox that starts now reaches its timeout. */
  expiryOf(row: Pick<SandboxRow, 'timeoutMs'>): number | null;
  /** The same, as part of a transaction. */
  within(tx: Transaction): StateRecorder;
}

/** The fields that a sandbox without processes does not have. */
const ENDED = { reason: null, message: null, runtime: null, expiresAtMs: null, pausedAs: null } as const;

export function openStateRecorder({
  records,
  activity,
  clock,
  recordEvent,
  expiry,
}: Pick<Core, 'records' | 'activity' | 'clock' | 'recordEvent'> & { expiry: Expiry }): StateRecorder {
  const recorderOn = (on: RecordSet): StateRecorder => {
    const recorder: StateRecorder = {
      change: (row, changes, onRecord) =>
        on.transaction(async (tx) => {
          const changed = await tx.sandboxes.update(row.id, changes);
          await onRecord?.(changed, tx);
          return changed;
        }),

      async running(row, observed, onRecord, changes = {}) {
        const nowMs = clock.now();
        // The timeout goes on for a sandbox that was active, and for one that was paused to make room.
        const timed = row.state === 'active' || row.expiresAtMs !== null;
        return recorder.change(
          row,
          {
            ...changes,
            state: 'active',
            reason: null,
            message: null,
            runtime: observed.runtime ?? null,
            incarnation: observed.incarnation,
            uid: observed.uid ?? null,
            startedAtMs: nowMs,
            usedAtMs: nowMs,
            expiresAtMs: timed ? row.expiresAtMs : recorder.expiryOf(row),
            pausedAs: null,
            origin: null,
          },
          async (active, tx) => {
            await onRecord?.(active, tx);
            tx.afterCommit(() => {
              activity.markUsed(row.id);
              expiry.changed();
            });
          },
        );
      },

      stopped: (row, changes, onRecord) =>
        recorder.change(row, { ...ENDED, ...changes, state: 'stopped' }, onRecord),

      async failed(row, observed) {
        const absent = observed.phase === 'absent';
        const reason = observed.reason ?? (absent ? 'removed_outside' : 'crashed');
        const message = observed.message ?? (absent ? 'The sandbox is gone from its backend' : null);
        return recorder.change(row, { ...ENDED, state: 'failed', reason, message }, (failed, tx) =>
          recordEvent(tx, 'sandbox.failed', failed, undefined, { reason }),
        );
      },

      async asObserved(row, observed, onRecord) {
        const level = pauseLevelOf(observed);
        const { incarnation, phase } = observed;
        if (level !== null)
          return recorder.change(
            row,
            { state: 'paused', pausedAs: level, incarnation, expiresAtMs: null },
            onRecord,
          );
        if (phase === 'ready') return recorder.running(row, observed, onRecord);
        if (phase === 'stopped') return recorder.stopped(row, { incarnation }, onRecord);
        return recorder.failed(row, observed);
      },

      expiryOf: ({ timeoutMs }) => (timeoutMs === null ? null : clock.now() + timeoutMs),
      within: recorderOn,
    };
    return recorder;
  };
  return recorderOn(records);
}

/** The level at which the backend has paused a sandbox; null if it is not paused. */
export function pauseLevelOf({ phase, frozen, suspended }: Observation): Exclude<Pause, 'archived'> | null {
  if (phase === 'stopped' && suspended) return 'suspended';
  if (phase === 'hibernated') return 'hibernated';
  return phase === 'ready' && frozen ? 'frozen' : null;
}
