import type { SandboxRow } from '../../records/tables/sandbox-row.ts';
import { unrecordedOnFullDisk } from '../capacity/unrecorded.ts';
import type { Core } from '../core.ts';
import type { Principal } from '../tenants/principal.ts';
import type { StateRecorder } from './record-state.ts';
import { requireTransition } from '../../records/transitions.ts';

export interface SandboxStopper {
  /** Ends the processes and keeps the files. Call this from the sandbox's queue. */
  stop(
    row: SandboxRow,
    principal: Principal | undefined,
    options: { cause: string; graceMs?: number },
  ): Promise<SandboxRow>;
}

export function openStopper({
  backend,
  records,
  recordEvent,
  drainLogs,
  onError,
  state,
}: Pick<Core, 'backend' | 'records' | 'recordEvent' | 'drainLogs' | 'onError'> & {
  state: StateRecorder;
}): SandboxStopper {
  return {
    async stop(row, principal, { cause, graceMs }) {
      // Without the reason `host_restarted` the next server does not start it again.
      if (row.state === 'stopped')
        return row.reason === null ? row : records.sandboxes.update(row.id, { reason: null, message: null });
      requireTransition(row.id, row.state, 'stopped');
      // A hibernated sandbox has no guest to read output from.
      if (row.state === 'active' || row.pausedAs === 'frozen') await drainLogs(row.id).catch(onError);
      await backend.stop(row.id, graceMs === undefined ? {} : { graceMs });
      try {
        return await state.stopped(row, {}, (stopped, tx) =>
          recordEvent(tx, 'sandbox.stopped', stopped, principal, { cause }),
        );
      } catch (error) {
        // `follow-backend.ts` records it as soon as there is room.
        throw unrecordedOnFullDisk(error, `Sandbox "${row.id}" has been stopped`);
      }
    },
  };
}
