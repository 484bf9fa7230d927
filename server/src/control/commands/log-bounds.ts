import { CayError } from '@cay/sdk/protocol';
import { MAIN_COMMAND_ID } from '../../backends/support/start-main.ts';
import type { Records } from '../../records/records.ts';
import type { SandboxRow } from '../../records/tables/sandbox-row.ts';
import type { Tables } from '../../records/tables/tables.ts';
import type { QuotaLedger } from '../tenants/quota-ledger.ts';

export interface LogBoundsOptions {
  records: Records;
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
   * Rejects `resource_exhausted` if the running commands of the project fill its quota for logs, or if the
   * sandbox has too many recorded commands whose end is not known. In the transaction that records one more.
   */
  requireRoom(tx: Tables, sandbox: Pick<SandboxRow, 'id' | 'project'>): Promise<void>;
  /** Forgets the oldest ended commands that are beyond the bounds of the sandbox. */
  trimSandbox(sandbox: string): Promise<void>;
  /** Forgets the oldest ended commands that are beyond the quota of the project. */
  trimProject(project: string): Promise<void>;
}

const MAX_COMMANDS = 256;
const MAX_BYTES = 128 * 1024 * 1024;
const TRIM_BATCH = 100;

export function logBounds(options: LogBoundsOptions): LogBounds {
  const { records, quota, runningBytes, forget } = options;
  const maxUnended = options.mostRunning + MAX_COMMANDS;
  // The own command is kept, because callers wait for it.
  const except = MAIN_COMMAND_ID;
  quota.counts('logBytes', 'ended', (project, on) => on.commands.endedBytes(project));
  quota.counts('logBytes', 'running', runningBytes);
  return {
    async requireRoom(tx, { id: sandbox, project }) {
      const limit = await quota.limit(tx, project, 'logBytes');
      // Ended commands are trimmed to make room, and running ones are not cut off.
      if (limit !== null && runningBytes(project) >= limit)
        await quota.requireRoom(tx, project, 'logBytes', 1);
      // A guest that a hostile program has replaced can leave any number of starts unanswered. Each of them
      // may run, so it stays recorded as running.
      if ((await tx.commands.unended(sandbox)) < maxUnended) return;
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
      const most = { commands: MAX_COMMANDS, bytes: MAX_BYTES };
      for (const id of await records.commands.beyond(sandbox, most, { except })) await forget(sandbox, id);
    },
    async trimProject(project) {
      const limit = await quota.limit(records, project, 'logBytes');
      if (limit === null) return;
      for (let over = (await quota.used(records, project, 'logBytes')).used - limit; over > 0;) {
        const oldest = await records.commands.oldestOf(project, TRIM_BATCH, { except });
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
