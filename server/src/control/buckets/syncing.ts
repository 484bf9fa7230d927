/**
 * Keeps the copies that sandboxes have of buckets: down before a sandbox starts, up at its turns and before
 * it ends.
 *
 * Call these from the sandbox's queue. Whether a sandbox may have changes that its bucket does not have is
 * recorded before its processes start, and taken back when they are written and it is stopped: a server that
 * was killed in between writes them when the sandbox is stopped or removed the next time.
 */
import { CayError, type SandboxId } from '@cay/sdk/protocol';
import type { SyncRow } from '../../records/tables/buckets.ts';
import type { SandboxRow } from '../../records/tables/sandbox-row.ts';
import type { Files } from '../../guest/guest.ts';
import type { Core } from '../core.ts';
import type { MountWrites } from './mount-writes.ts';
import type { ProjectBuckets } from './project-buckets.ts';
import { syncRunner, type SyncedSandbox } from './sync-runner.ts';

export interface EndOptions {
  /** Gives up what cannot be written. */
  force?: boolean | undefined;
}

export interface Syncing {
  /** Before a sandbox that was not running is recorded as running. */
  down(row: SyncedSandbox): Promise<void>;
  /** What an active sandbox changed. `ends`: nothing more will change. */
  up(row: SyncedSandbox, options?: { ends?: boolean }): Promise<void>;
  /**
   * Before it is stopped or removed. A paused sandbox that has changes is woken for that. Rejects with what
   * failed: then it must not end. What is in mounts of buckets is written too, whatever its state.
   */
  beforeEnd(
    row: SandboxRow,
    awake: (row: SandboxRow) => Promise<SandboxRow>,
    options?: EndOptions,
  ): Promise<SandboxRow>;
  /** After it has been stopped. Rejects with what its mounts have left, which is tried again. */
  afterStop(row: SandboxRow, options?: EndOptions): Promise<void>;
}

export function openSyncing({
  backend,
  clock,
  closing,
  quota,
  recordEvent,
  records,
  mountWrites,
  projectBuckets,
}: Pick<Core, 'backend' | 'clock' | 'closing' | 'quota' | 'recordEvent' | 'records'> & {
  mountWrites: MountWrites;
  projectBuckets: ProjectBuckets;
}): Syncing {
  const { buckets } = records;
  quota.counts('uploadBytes', 'syncs', (project, on) => on.buckets.baseBytes(project));

  async function filesOf({ id, spec }: SyncedSandbox): Promise<Files> {
    return (await backend.connect(id)).files(spec.user);
  }

  const runner = syncRunner({ clock, closing, quota, recordEvent, records, projectBuckets });
  const goesUp = ({ direction }: SyncRow) => direction !== 'down';

  const syncing: Syncing = {
    async down(row) {
      const syncs = await buckets.syncs(row.id);
      if (syncs.length === 0) return;
      const files = await filesOf(row);
      for (const sync of syncs) {
        if (sync.direction !== 'up') await runner.down(row, files, sync);
        if (goesUp(sync)) await buckets.update(sync, { pending: true });
      }
    },
    async up(row, { ends = false } = {}) {
      const syncs = (await buckets.syncs(row.id)).filter(goesUp);
      if (syncs.length === 0) return;
      const files = await filesOf(row);
      for (const sync of syncs) {
        await runner.up(row, files, sync);
        if (ends) await buckets.update(sync, { pending: false });
      }
    },
    async beforeEnd(row, awake, { force = false } = {}) {
      if (force) return row;
      const waiting = (await buckets.syncs(row.id)).filter((sync) => goesUp(sync) && sync.pending);
      if (waiting.length === 0) {
        await mountWrites.write(row, 'end');
        return row;
      }
      const awoken = row.state === 'paused' ? await awake(row) : row;
      if (awoken.state !== 'active') throw notWritten(row.id, awoken.state, waiting[0]!);
      await syncing.up(awoken, { ends: true });
      await mountWrites.write(awoken, 'end');
      return awoken;
    },
    afterStop: (row, options) => mountWrites.afterStop(row, options),
  };
  return syncing;
}

function notWritten(id: SandboxId, state: string, { bucket, path }: SyncRow): CayError {
  return new CayError(
    'failed_precondition',
    `Sandbox "${id}" is ${state}, and what it changed in "${path}" is not in bucket "${bucket}"`,
    {
      details: { bucket, path, state },
      hint: `start it, so that it can be written; or give it up: cay bucket detach ${id} ${path}`,
    },
  );
}
