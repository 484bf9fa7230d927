import type { CommandInfo } from '@cay/sdk/protocol';
import { MAIN_COMMAND_ID } from '../../backends/support/start-main.ts';
import { removeLog } from '../../lib/frame-log.ts';
import type { CommandRecords, CommandRow } from '../../records/tables/commands.ts';
import type { SandboxRow } from '../../records/tables/sandbox-row.ts';
import { isSame } from './own-command.ts';
import type { Recorders } from './recorders.ts';

interface Context {
  commands: Pick<CommandRecords, 'get' | 'insert'>;
  recorders: Pick<Recorders, 'finishing'>;
  begin(command: CommandRow, options: { fresh: boolean; owner: string }): void;
  /** Where the logs of the sandbox are. */
  directory: string;
  signal: AbortSignal;
}

/** Begins to record the own command of a sandbox that was started, unless it is recorded already. */
export async function recordOwnCommand(
  { commands, recorders, begin, directory, signal }: Context,
  { id: sandbox, project, spec }: SandboxRow,
  info: CommandInfo,
): Promise<void> {
  const id = MAIN_COMMAND_ID;
  const known = await commands.get(sandbox, id);
  if (known && isSame(known, info)) return;
  // The recorder of the earlier command finds that the guest has another one, and records its end as lost.
  if (known) await recorders.finishing(sandbox, id);
  if (signal.aborted) return;
  await removeLog(directory, id);
  const { pid, startedAtMs } = info;
  const command = {
    sandbox,
    id,
    argv: spec.cmd!,
    pty: false,
    overflow: 'drop',
    key: null,
    pid,
    startedAtMs,
    outputBytes: 0,
    keptFrom: 0,
  } as const;
  if ((await commands.insert(command)) && !signal.aborted) begin(command, { fresh: true, owner: project });
}
