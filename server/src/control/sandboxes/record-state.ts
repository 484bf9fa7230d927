/**
 * Writes to a sandbox's record what it has become. Each change and its event are one transaction.
 *
 * Call these from the sandbox's queue.
 */
import type { Pause } from '@cay/sdk/protocol';
import type { Observation } from '../../backends/backend.ts';
import type { SandboxRecords, SandboxRow } from '../../records/sandboxes.ts';
import type { Core } from '../core.ts';
import type { Expiry } from './expiry.ts';

/** Called in the transaction that records a change, to append the event of it. */
export type OnRecord = (changed: SandboxRow) => void;

export interface StateRecorder {
  change(row: SandboxRow, changes: Parameters<SandboxRecords['update']>[1], onRecord?: OnRecord): SandboxRow;
  /** It runs from now on. `changes` are recorded with that. */
  running(
    row: SandboxRow,
    observed: Observation,
    onRecord?: OnRecord,
    changes?: Partial<Pick<SandboxRow, 'spec'>>,
  ): SandboxRow;
  /** It has its files and no processes. */
  stopped(row: SandboxRow, changes: Partial<SandboxRow>, onRecord?: OnRecord): SandboxRow;
  failed(row: SandboxRow, observed: Observation): SandboxRow;
  /** The state that the backend reports: active, paused, stopped or failed. */
  asObserved(row: SandboxRow, observed: Observation, onRecord?: OnRecord): SandboxRow;
  /** When a sandbox that starts now reaches its timeout. */
  expiryOf(row: Pick<SandboxRow, 'timeoutMs'>): number | null;
}

/** The fields that a sandbox without processes does not have. */
const ENDED = { reason: null, message: null, runtime: null, expiresAtMs: null, pausedAs: null } as const;

export function openStateRecorder({
  records: { database, sandboxes },
  activity,
  clock,
  recordEvent,
  expiry,
}: Pick<Core, 'records' | 'activity' | 'clock' | 'recordEvent'> & { expiry: Expiry }): StateRecorder {
  const recorder: StateRecorder = {
    change: (row, changes, onRecord) =>
      database.transaction(() => {
        const changed = sandboxes.update(row.id, changes);
        onRecord?.(changed);
        return changed;
      }),

    running(row, observed, onRecord, changes = {}) {
      const nowMs = clock.now();
      // The timeout goes on for a sandbox that was active, and for one that was paused to make room.
      const timed = row.state === 'active' || row.expiresAtMs !== null;
      const active = recorder.change(
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
        onRecord,
      );
      activity.markUsed(row.id);
      expiry.changed();
      return active;
    },

    stopped: (row, changes, onRecord) =>
      recorder.change(row, { ...ENDED, ...changes, state: 'stopped' }, onRecord),

    failed(row, observed) {
      const absent = observed.phase === 'absent';
      const reason = observed.reason ?? (absent ? 'removed_outside' : 'crashed');
      const message = observed.message ?? (absent ? 'The sandbox is gone from its backend' : null);
      return recorder.change(row, { ...ENDED, state: 'failed', reason, message }, (failed) =>
        recordEvent('sandbox.failed', failed, undefined, { reason }),
      );
    },

    asObserved(row, observed, onRecord) {
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
  };
  return recorder;
}

/** The level at which the backend has paused a sandbox; null if it is not paused. */
export function pauseLevelOf({ phase, frozen, suspended }: Observation): Exclude<Pause, 'archived'> | null {
  if (phase === 'stopped' && suspended) return 'suspended';
  if (phase === 'hibernated') return 'hibernated';
  return phase === 'ready' && frozen ? 'frozen' : null;
}
