import { CayError } from '@cay/sdk/protocol';
import type { SandboxRecords } from '../../records/sandboxes.ts';
import type { QuotaLedger } from '../tenants/quota-ledger.ts';
import type { CommandRecords } from './command-records.ts';

export interface LogBoundsOptions {
  records: Pick<CommandRecords, 'beyond' | 'oldestOf' | 'endedBytes' | 'unended'>;
  sandboxes: Pick<SandboxRecords, 'get'>;
  quota: Pick<QuotaLedger, 'counts' | 'limit' | 'requireRoom' | 'used'>;
  /** How many commands of a sandbox may run at once. */
  mostRunning: number;
  /** Bytes in the logs of a project's commands that still run. */
  runningBytes(project: string): number;
  forget(sandbox: string, id: string): Promise<void>;
}

/** Bounds of command logs for each sandbox and each project. The newest commands are kept. */
export interface LogBounds {
  /**
   * Throws `resource_exhausted` if the running commands of the project fill its quota for logs, or if the
   * sandbox has too many recorded commands whose end is not known.
   */
  requireRoom(sandbox: string): void;
  /** Forgets the oldest ended commands that are beyond the bounds of the sandbox. */
  trimSandbox(sandbox: string): Promise<void>;
  /** Forgets the oldest ended commands that are beyond the quota of the project. */
  trimProject(project: string): Promise<void>;
}

const MAX_COMMANDS = 256;
const MAX_BYTES = 128 * 1024 * 1024;
const TRIM_BATCH = 100;

export function logBounds(options: LogBoundsOptions): LogBounds {
  const { records, sandboxes, quota, runningBytes, forget } = options;
  const maxUnended = options.mostRunning + MAX_COMMANDS;
  quota.counts('logBytes', 'ended', records.endedBytes);
  quota.counts('logBytes', 'running', runningBytes);
  return {
    requireRoom(sandbox) {
      const project = sandboxes.get(sandbox)?.project;
      const limit = project === undefined ? null : quota.limit(project, 'logBytes');
      // Ended commands are trimmed to make room, and running ones are not cut off.
      if (project !== undefined && limit !== null && runningBytes(project) >= limit)
        quota.requireRoom(project, 'logBytes', 1);
      // A guest that a hostile program has replaced can leave any number of starts unanswered. Each of them
      // may run, so it stays recorded as running.
      if (records.unended(sandbox) < maxUnended) return;
      throw new CayError(
        'resource_exhausted',
        `Sandbox "${sandbox}" has ${maxUnended} recorded commands whose end is not known, as many as it may have`,
        {
          details: { limit: 'unendedCommands', maximum: maxUnended },
          hint: 'wait for some to end, end them, or forget those that the sandbox does not have any more',
        },
      );
    },
    async trimSandbox(sandbox) {
      for (const id of records.beyond(sandbox, { commands: MAX_COMMANDS, bytes: MAX_BYTES }))
        await forget(sandbox, id);
    },
    async trimProject(project) {
      const limit = quota.limit(project, 'logBytes');
      if (limit === null) return;
      for (let over = quota.used(project, 'logBytes').used - limit; over > 0;) {
        const oldest = records.oldestOf(project, TRIM_BATCH);
        if (oldest.length === 0) return;
        for (const { sandbox, id, bytes } of oldest) {
          if (over <= 0) return;
          await forget(sandbox, id);
          over -= bytes;
        }
      }
    },
  };
}
