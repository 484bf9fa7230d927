import type { CommandEnd, CommandInfo } from '@cay/sdk/protocol';
import type { TableContext } from './table-context.ts';

/** A command whose output and end are recorded on the server. */
export interface CommandRow extends CommandInfo {
  sandbox: string;
  /** What happens to a command whose output is read too slowly. */
  overflow: 'wait' | 'drop';
  /** The API key that started it. */
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
  /** Replaces a command with the same id. Resolves false if the sandbox does not exist. */
  insert(command: CommandRow): Promise<boolean>;
  ended(
    sandbox: string,
    id: string,
    end: CommandEnd,
    log: { pid: number; outputBytes: number; keptFrom: number },
    atMs: number,
  ): Promise<void>;
  get(sandbox: string, id: string): Promise<CommandRow | undefined>;
  /** Oldest first. */
  list(sandbox: string): Promise<CommandRow[]>;
  /**
   * The ended commands to delete, oldest first, so that the others are within bounds. The newest ended
   * command and the command `except` are never among them.
   */
  beyond(
    sandbox: string,
    most: { commands: number; bytes: number },
    options: { except: string },
  ): Promise<string[]>;
  /** The size of the logs of a project's ended commands. */
  endedBytes(project: string): Promise<number>;
  /** A project's ended commands, oldest first, without those whose id is `except`. */
  oldestOf(
    project: string,
    limit: number,
    options: { except: string },
  ): Promise<{ sandbox: string; id: string; bytes: number }[]>;
  running(): Promise<CommandRow[]>;
  /** How many commands of a sandbox have no recorded end. */
  unended(sandbox: string): Promise<number>;
  delete(sandbox: string, id: string): Promise<void>;
}

export function commandTable({ sql }: TableContext): CommandRecords {
  const order = sql.dialect.insertionOrder;
  return {
    insert: async (command) =>
      (await sql.run(
        `INSERT INTO commands (sandbox, id, argv, pty, pid, overflow, key, started_at, output_bytes, kept_from)
         SELECT id, ?, ?, ?, ?, ?, ?, ?, 0, 0 FROM sandboxes WHERE id = ?
         ON CONFLICT (sandbox, id) DO UPDATE SET argv = excluded.argv, pty = excluded.pty, pid = excluded.pid,
           overflow = excluded.overflow, key = excluded.key, started_at = excluded.started_at,
           ended_at = NULL, "end" = NULL, output_bytes = 0, kept_from = 0`,
        command.id,
        JSON.stringify(command.argv),
        command.pty ? 1 : 0,
        command.pid,
        command.overflow,
        command.key,
        command.startedAtMs,
        command.sandbox,
      )) > 0,
    async ended(sandbox, id, end, { pid, outputBytes, keptFrom }, atMs) {
      await sql.run(
        `UPDATE commands SET "end" = ?, pid = ?, output_bytes = ?, kept_from = ?, ended_at = ?
         WHERE sandbox = ? AND id = ?`,
        JSON.stringify(end),
        pid,
        outputBytes,
        keptFrom,
        atMs,
        sandbox,
        id,
      );
    },
    async get(sandbox, id) {
      const row = await sql.get<StoredCommand>(
        'SELECT * FROM commands WHERE sandbox = ? AND id = ?',
        sandbox,
        id,
      );
      return row && parse(row);
    },
    list: async (sandbox) =>
      (
        await sql.all<StoredCommand>(
          `SELECT * FROM commands WHERE sandbox = ? ORDER BY started_at, ${order}`,
          sandbox,
        )
      ).map(parse),
    async beyond(sandbox, most, { except }) {
      const total = (await sql.get<{ commands: number; bytes: number }>(
        `SELECT count(*) AS commands, CAST(coalesce(sum(output_bytes - kept_from), 0) AS BIGINT) AS bytes
         FROM commands WHERE sandbox = ?`,
        sandbox,
      ))!;
      let { commands, bytes } = total;
      if (commands <= most.commands && bytes <= most.bytes) return [];
      const ended = await sql.all<{ id: string; bytes: number }>(
        `SELECT id, output_bytes - kept_from AS bytes FROM commands
         WHERE sandbox = ? AND "end" IS NOT NULL AND id <> ? ORDER BY started_at, ${order}`,
        sandbox,
        except,
      );
      const beyond: string[] = [];
      for (const command of ended.slice(0, -1)) {
        if (commands <= most.commands && bytes <= most.bytes) break;
        beyond.push(command.id);
        commands--;
        bytes -= command.bytes;
      }
      return beyond;
    },
    endedBytes: async (project) =>
      (await sql.get<{ bytes: number }>(
        `SELECT CAST(coalesce(sum(output_bytes - kept_from), 0) AS BIGINT) AS bytes
         FROM commands JOIN sandboxes ON sandboxes.id = commands.sandbox
         WHERE project = ? AND "end" IS NOT NULL`,
        project,
      ))!.bytes,
    oldestOf: (project, limit, { except }) =>
      sql.all<{ sandbox: string; id: string; bytes: number }>(
        `SELECT sandbox, commands.id AS id, output_bytes - kept_from AS bytes
         FROM commands JOIN sandboxes ON sandboxes.id = commands.sandbox
         WHERE project = ? AND "end" IS NOT NULL AND commands.id <> ?
         ORDER BY commands.started_at, commands.${order} LIMIT ?`,
        project,
        except,
        limit,
      ),
    running: async () =>
      (await sql.all<StoredCommand>('SELECT * FROM commands WHERE "end" IS NULL')).map(parse),
    unended: async (sandbox) =>
      (await sql.get<{ count: number }>(
        'SELECT count(*) AS count FROM commands WHERE sandbox = ? AND "end" IS NULL',
        sandbox,
      ))!.count,
    async delete(sandbox, id) {
      await sql.run('DELETE FROM commands WHERE sandbox = ? AND id = ?', sandbox, id);
    },
  };
}

function parse(row: StoredCommand): CommandRow {
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
