/** Wakes paused sandboxes: for a call that needs one, and for a change that needs its files or processes. */
import type { SandboxId } from '@cay/sdk/protocol';
import { faultPoint } from '../../lib/fault-point.ts';
import type { SandboxRow } from '../../records/tables/sandbox-row.ts';
import type { Core } from '../core.ts';
import { notRunning } from '../sandboxes/not-running.ts';
import type { OnRecord, StateRecorder } from '../sandboxes/record-state.ts';
import type { SandboxStarter } from '../sandboxes/start-sandbox.ts';
import { withMemoryHint } from '../snapshots/memory-errors.ts';
import type { Principal } from '../tenants/principal.ts';
import type { Reservation } from '../tenants/reservations.ts';
import type { Archiving } from './archive.ts';

/** All but `wake` are called from the sandbox's queue. */
export interface Waker {
  /** Enqueues itself, once for all callers that ask at the same time. */
  wake(id: SandboxId, principal?: Principal): Promise<SandboxRow>;
  /**
   * A paused sandbox becomes active; an active, stopped or failed one stays as it is. Rejects
   * `failed_precondition` while the sandbox is being made or removed.
   */
  ensureAwake(row: SandboxRow): Promise<SandboxRow>;
  /** Wakes an archived sandbox, whose files are not on the machine. With `thaw`, a frozen one too. */
  ensureUnarchived(row: SandboxRow, options?: { thaw?: boolean }): Promise<SandboxRow>;
  /**
   * Restores the files of an archived sandbox, or thaws a frozen one so that its processes receive the signal
   * of a stop.
   */
  prepareStop(row: SandboxRow): Promise<SandboxRow>;
}

export function openWaker({
  activity,
  backend,
  lookup,
  operations,
  pressure,
  quota,
  recordEvent,
  archiving,
  starter,
  state,
}: Pick<Core, 'activity' | 'backend' | 'lookup' | 'operations' | 'pressure' | 'quota' | 'recordEvent'> & {
  archiving: Archiving;
  starter: SandboxStarter;
  state: StateRecorder;
}): Waker {
  const underWay = new Map<SandboxId, Promise<SandboxRow>>();

  /** The limits that waking adds to those that are counted: disk always is, memory of a frozen one too. */
  function addedLimits({ pausedAs, spec }: SandboxRow) {
    const { cpus, memoryBytes, pids } = spec.limits;
    const frozen = pausedAs === 'frozen';
    return { cpus, memoryBytes: frozen ? 0 : memoryBytes, diskBytes: 0, pids: frozen ? 0 : pids };
  }

  async function admit({ pausedAs, spec }: SandboxRow, reserved: Reservation): Promise<void> {
    if (pausedAs === 'frozen') return;
    const { memoryBytes, diskBytes } = spec.limits;
    const addedDisk = pausedAs === 'archived' ? diskBytes : null;
    await pressure.admit({ memoryBytes, diskBytes: addedDisk }, { platform: spec.platform, reserved });
  }

  async function wakeInBackend(row: SandboxRow, onRecord: OnRecord): Promise<SandboxRow> {
    await faultPoint('control.wake.begun');
    if (row.pausedAs === 'archived') return archiving.restore(row, { onRecord });
    const observed = await backend.observe(row.id);
    const freezing = backend.ability('freeze');
    if (observed.frozen && freezing) {
      await freezing.thaw(row.id);
      await faultPoint('control.wake.done');
      return state.asObserved(row, { ...observed, frozen: false }, onRecord);
    }
    // A sandbox that has ended meanwhile must not start without its memory.
    const canContinue =
      observed.phase === 'hibernated' || observed.phase === 'ready' || observed.suspended === true;
    if (!canContinue) throw notRunning(await state.asObserved(row, observed));
    await faultPoint('control.wake.done');
    return starter.start(row, onRecord).catch((error: unknown) => {
      throw withMemoryHint(error);
    });
  }

  async function wakeNow(row: SandboxRow, principal?: Principal): Promise<SandboxRow> {
    const { pausedAs } = row;
    if (row.state !== 'paused' || pausedAs === null) return row;
    const limits = addedLimits(row);
    const onRecord: OnRecord = (active, tx) =>
      recordEvent(tx, 'sandbox.resumed', active, principal, { from: pausedAs });
    const active = await quota.reserving(row.project, { added: limits }, async (reserved) => {
      await admit(row, reserved);
      return wakeInBackend(row, onRecord);
    });
    activity.touch(row.id);
    return active;
  }

  function requireMade(row: SandboxRow): void {
    if (row.state === 'creating' || row.state === 'destroying') throw notRunning(row);
  }

  return {
    wake(id, principal) {
      let woken = underWay.get(id);
      if (!woken) {
        woken = operations
          .enqueue(id, async () => wakeNow(await lookup.reload({ id }), principal), 'resume')
          .finally(() => underWay.delete(id));
        underWay.set(id, woken);
      }
      return woken;
    },

    async ensureAwake(row) {
      requireMade(row);
      return wakeNow(row);
    },

    async ensureUnarchived(row, { thaw = false } = {}) {
      requireMade(row);
      return row.pausedAs === 'archived' || (thaw && row.pausedAs === 'frozen') ? wakeNow(row) : row;
    },

    async prepareStop(row) {
      if (row.pausedAs === 'archived') return archiving.restore(row, { filesOnly: true });
      if (row.pausedAs === 'frozen') await backend.ability('freeze')?.thaw(row.id);
      return row;
    },
  };
}
