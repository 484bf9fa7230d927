import type { SandboxRecords } from '../../records/sandboxes.ts';
import type { QuotaLedger } from '../tenants/quota-ledger.ts';
import type { CommandRecords } from './command-records.ts';

export interface LogBoundsOptions {
  records: Pick<CommandRecords, 'beyond' | 'oldestOf' | 'endedBytes'>;
  sandboxes: Pick<SandboxRecords, 'get'>;
  quota: Pick<QuotaLedger, 'counts' | 'limit' | 'requireRoom' | 'used'>;
  /** Bytes in the logs of a project's commands that still run. */
  runningBytes(project: string): number;
  forget(sandbox: string, id: string): Promise<void>;
}

/** Bounds of command logs for each sandbox and each project. The newest commands are kept. */
export interface LogBounds {
  /** Throws `resource_exhausted` if the running commands of the project fill its quota for logs. */
  requireRoom(sandbox: string): void;
  /** Forgets the oldest ended commands that are beyond the bounds of the sandbox. */
  trimSandbox(sandbox: string): Promise<void>;
  /** Forgets the oldest ended commands that are beyond the quota of the project. */
  trimProject(project: string): Promise<void>;
}

const MAX_COMMANDS = 256;
const MAX_BYTES = 128 * 1024 * 1024;
const TRIM_BATCH = 100;

export function logBounds({ records, sandboxes, quota, runningBytes, forget }: LogBoundsOptions): LogBounds {
  quota.counts('logBytes', 'ended', records.endedBytes);
  quota.counts('logBytes', 'running', runningBytes);
  return {
    requireRoom(sandbox) {
      const project = sandboxes.get(sandbox)?.project;
      const limit = project === undefined ? null : quota.limit(project, 'logBytes');
      // Ended commands are trimmed to make room, and running ones are not cut off.
      if (project !== undefined && limit !== null && runningBytes(project) >= limit)
        quota.requireRoom(project, 'logBytes', 1);
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
