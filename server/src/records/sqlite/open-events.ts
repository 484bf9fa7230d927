import { DatabaseSync } from 'node:sqlite';
import { openEventLog, type EventLog, type EventLogOptions } from '../events/event-log.ts';
import { prepareTables } from './event-tables.ts';
import { sqliteChain, type SqliteChain } from './sqlite-chain.ts';
import { sqliteConnection } from './sqlite-connection.ts';
import { sqliteSql } from './sqlite-sql.ts';

export interface SqliteEvents {
  readonly log: EventLog;
  readonly chain: SqliteChain;
  backup(path: string): Promise<void>;
  /** Writes what waits, then lets go of the file. */
  close(): Promise<void>;
}

/**
 * The event log in a file of its own, or in memory (`:memory:`). `synchronous = NORMAL`: no event is lost
 * with the server, the last few can be lost with the machine, and a command does not wait for the disk.
 */
export async function openSqliteEvents(path: string, options: EventLogOptions): Promise<SqliteEvents> {
  const writer = sqliteConnection(new DatabaseSync(path));
  try {
    // This process has the file to itself, which saves the locking around every event.
    writer.sqlite.exec(
      'PRAGMA locking_mode = EXCLUSIVE; PRAGMA journal_mode = WAL; PRAGMA synchronous = NORMAL; PRAGMA busy_timeout = 5000',
    );
    prepareTables(writer.sqlite, options.key);
    const sql = sqliteSql({ writer, onError: options.onError });
    const chain = await sqliteChain(sql);
    const log = await openEventLog(chain, options);
    return {
      log,
      chain,
      backup: (to) => writer.backup(to),
      async close() {
        await log.close();
        await sql.idle();
        writer.close();
      },
    };
  } catch (error) {
    writer.close();
    throw error;
  }
}
