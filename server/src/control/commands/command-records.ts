import type { CommandEnd, CommandInfo } from '@cay/sdk/protocol';
import { MAIN_COMMAND_ID } from '../../backends/support/start-main.ts';
import type { Database } from '../../records/database.ts';

/** A command whose output and end are recorded on the server. */
export interface RecordedCommand extends CommandInfo {
  sandbox: string;
  /** Whether a slow reader makes the command wait, or output is dropped. */
  overflow: 'wait' | 'drop';
  /** The id of the API key that started it. */
  key: string | null;
}

interface StoredCommand {
  sandbox: string;
  id: string;
  argv: string;
  pty: number;
  pid: number;
  overflow: string;
  key: string | null;
  started_at: number;
  end: string | null;
  output_bytes: number;
  kept_from: number;
}

export interface CommandRecords {
  /** Replaces a command with the same id. False if the sandbox does not exist any more. */
  insert(command: RecordedCommand): boolean;
  ended(
    sandbox: string,
    id: string,
    end: CommandEnd,
    log: { pid: number; outputBytes: number; keptFrom: number },
    atMs: number,
  ): void;
  get(sandbox: string, id: string): RecordedCommand | undefined;
  /** Oldest first. */
  list(sandbox: string): RecordedCommand[];
  /** Ended commands beyond the bounds, oldest first. The own command is kept, because callers wait for it. */
  beyond(sandbox: string, most: { commands: number; bytes: number }): string[];
  /** Bytes in the logs of a project's ended commands. */
  endedBytes(project: string): number;
  /** A project's ended commands, oldest first, without own commands. */
  oldestOf(project: string, limit: number): { sandbox: string; id: string; bytes: number }[];
  running(): RecordedCommand[];
  /** Number of commands of a sandbox without an end. */
  unended(sandbox: string): number;
  delete(sandbox: string, id: string): void;
}

export function commandRecords(database: Database): CommandRecords {
  return {
    insert: (command) =>
      database.run(
        `INSERT OR REPLACE INTO commands (sandbox, id, argv, pty, pid, overflow, key, started_at, output_bytes, kept_from)
         SELECT id, ?, ?, ?, ?, ?, ?, ?, 0, 0 FROM sandboxes WHERE id = ?`,
        command.id,
        JSON.stringify(command.argv),
        command.pty ? 1 : 0,
        command.pid,
        command.overflow,
        command.key,
        command.startedAtMs,
        command.sandbox,
      ) > 0,
    ended: (sandbox, id, end, { pid, outputBytes, keptFrom }, atMs) =>
      void database.run(
        'UPDATE commands SET end = ?, pid = ?, output_bytes = ?, kept_from = ?, ended_at = ? WHERE sandbox = ? AND id = ?',
        JSON.stringify(end),
        pid,
        outputBytes,
        keptFrom,
        atMs,
        sandbox,
        id,
      ),
    get: (sandbox, id) =>
      parse(database.get<StoredCommand>('SELECT * FROM commands WHERE sandbox = ? AND id = ?', sandbox, id)),
    list: (sandbox) =>
      database
        .all<StoredCommand>('SELECT * FROM commands WHERE sandbox = ? ORDER BY started_at, rowid', sandbox)
        .map((row) => parse(row)!),
    beyond(sandbox, most) {
      const total = database.get<{ commands: number; bytes: number }>(
        'SELECT count(*) AS commands, ifnull(sum(output_bytes - kept_from), 0) AS bytes FROM commands WHERE sandbox = ?',
        sandbox,
      )!;
      const gone: string[] = [];
      if (total.commands <= most.commands && total.bytes <= most.bytes) return gone;
      const ended = database.all<{ id: string; bytes: number }>(
        'SELECT id, output_bytes - kept_from AS bytes FROM commands WHERE sandbox = ? AND end IS NOT NULL AND id <> ? ORDER BY started_at, rowid',
        sandbox,
        MAIN_COMMAND_ID,
      );
      // The newest command is kept, whatever its size.
      for (const { id, bytes } of ended.slice(0, -1)) {
        if (total.commands <= most.commands && total.bytes <= most.bytes) break;
        gone.push(id);
        total.commands--;
        total.bytes -= bytes;
      }
      return gone;
    },
    endedBytes: (project) =>
      database.get<{ bytes: number }>(
        `SELECT ifnull(sum(output_bytes - kept_from), 0) AS bytes FROM commands JOIN sandboxes ON sandboxes.id = commands.sandbox
         WHERE project = ? AND end IS NOT NULL`,
        project,
      )!.bytes,
    oldestOf: (project, limit) =>
      database.all<{ sandbox: string; id: string; bytes: number }>(
        `SELECT sandbox, commands.id AS id, output_bytes - kept_from AS bytes
         FROM commands JOIN sandboxes ON sandboxes.id = commands.sandbox
         WHERE project = ? AND end IS NOT NULL AND commands.id <> ? ORDER BY commands.started_at, commands.rowid LIMIT ?`,
        project,
        MAIN_COMMAND_ID,
        limit,
      ),
    running: () =>
      database.all<StoredCommand>('SELECT * FROM commands WHERE end IS NULL').map((row) => parse(row)!),
    unended: (sandbox) =>
      database.get<{ count: number }>(
        'SELECT count(*) AS count FROM commands WHERE sandbox = ? AND end IS NULL',
        sandbox,
      )!.count,
    delete: (sandbox, id) =>
      void database.run('DELETE FROM commands WHERE sandbox = ? AND id = ?', sandbox, id),
  };
}

function parse(row: StoredCommand | undefined): RecordedCommand | undefined {
  if (!row) return undefined;
  return {
    sandbox: row.sandbox,
    id: row.id,
    argv: JSON.parse(row.argv) as string[],
    pty: row.pty !== 0,
    pid: row.pid,
    overflow: row.overflow as 'wait' | 'drop',
    key: row.key,
    startedAtMs: row.started_at,
    ...(row.end !== null && { end: JSON.parse(row.end) as CommandEnd }),
    outputBytes: row.output_bytes,
    keptFrom: row.kept_from,
  };
}
