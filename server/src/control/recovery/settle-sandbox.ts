import type { SandboxId } from '@cay/sdk/protocol';
import type { Observation } from '../../backends/backend.ts';
import type { SandboxRow } from '../../records/tables/sandbox-row.ts';
import type { Core } from '../core.ts';
import { pauseLevelOf, type StateRecorder } from '../sandboxes/record-state.ts';
import type { SandboxStarter } from '../sandboxes/start-sandbox.ts';

export interface Settler {
  /**
   * Records what the backend reports, where it differs from the record: a start or stop was cut short, or the
   * sandbox ended by itself. Call this from the sandbox's queue.
   */
  settle(row: SandboxRow, observed: Observation): Promise<void>;
}

export function openSettler({
  closing,
  onError,
  operations,
  recordEvent,
  records: { sandboxes },
  starter,
  state,
}: Pick<Core, 'closing' | 'onError' | 'operations' | 'recordEvent' | 'records'> & {
  starter: SandboxStarter;
  state: StateRecorder;
}): Settler {
  /** After a restart of the machine nothing of the sandbox is broken: it is stopped, as by a caller. */
  function stoppedByReboot(row: SandboxRow, { message }: Observation): Promise<SandboxRow> {
    return state.stopped(row, { reason: 'host_restarted', message: message ?? null }, (stopped, tx) =>
      recordEvent(tx, 'sandbox.stopped', stopped, undefined, { cause: 'host_restarted' }),
    );
  }

  /** Starts a sandbox with `onBoot: start`, also if an earlier server died before it had done so. */
  async function startAfterReboot(id: SandboxId): Promise<void> {
    const toStart = (row: SandboxRow | undefined) =>
      row?.state === 'stopped' && row.reason === 'host_restarted' && row.onBoot === 'start' ? row : undefined;
    if (!toStart(await sandboxes.get(id))) return;
    operations
      .enqueue(id, async () => {
        const row = closing.aborted ? undefined : toStart(await sandboxes.get(id));
        if (!row) return;
        await starter.start(row, (active, tx) =>
          recordEvent(tx, 'sandbox.started', active, undefined, { cause: 'boot' }),
        );
      })
      .catch(onError);
  }

  function recordStarted(row: SandboxRow): void {
    operations
      .enqueue(row.id, () =>
        starter.start(row, (active, tx) => recordEvent(tx, 'sandbox.started', active, undefined)),
      )
      .catch(onError);
  }

  async function recordEnded(row: SandboxRow, observed: Observation): Promise<void> {
    if (observed.phase === 'stopped') {
      await state.asObserved(row, observed, (stopped, tx) =>
        recordEvent(tx, 'sandbox.stopped', stopped, undefined, { cause: 'backend' }),
      );
    } else if (observed.reason === 'host_restarted') await stoppedByReboot(row, observed);
    else await state.failed(row, observed);
  }

  return {
    async settle(row, observed) {
      if (row.pausedAs === 'archived') return;
      const level = pauseLevelOf(observed);
      const runs = observed.phase === 'starting' || (observed.phase === 'ready' && level === null);
      if (runs && row.state !== 'active') recordStarted(row);
      else if (level !== null && row.pausedAs !== level) {
        await state.asObserved(row, observed, (paused, tx) =>
          recordEvent(tx, 'sandbox.paused', paused, undefined, { as: level, cause: 'backend' }),
        );
      } else if (!runs && level === null && (row.state === 'active' || row.state === 'paused'))
        await recordEnded(row, observed);
      if (row.onBoot === 'start') await startAfterReboot(row.id);
    },
  };
}
