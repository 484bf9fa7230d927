/**
 * Records in the data directory: `records.db`, where a commit waits for the disk, and `events.db`, which has
 * many more writes and does not wait. An event of a transaction is promised in `records.db` and then written
 * to `events.db` together with the number of the promise, so that it is written exactly once: see decision
 * 11.
 *
 * One server uses a data directory at a time; the lock on it is the caller's.
 */
import { join } from 'node:path';
import { DatabaseSync } from 'node:sqlite';
import { buildRecords } from '../build-records.ts';

import type { EventLog } from '../events/event-log.ts';
import { promisedEvent } from '../events/waiting-event.ts';
import type { RecordsOptions } from '../open-records.ts';
import type { Records } from '../records.ts';
import { openInstallationKey } from '../sealing/installation-key.ts';
import { sealedSpecs } from '../sealing/sealed-spec.ts';
import type { TableContext } from '../tables/table-context.ts';
import { secretTable } from '../tables/secrets.ts';
import { migrateRecords } from './migrate.ts';
import { openSqliteEvents, type SqliteEvents } from './open-events.ts';
import { sqliteConnection, type SqliteConnection } from './sqlite-connection.ts';
import { sqliteSql } from './sqlite-sql.ts';

export async function openSqliteRecords(options: RecordsOptions): Promise<Records> {
  const { directory, now, ageing, onError } = options;
  const path = join(directory, 'records.db');
  const box = options.box ?? openInstallationKey(directory);

  const opened: SqliteConnection[] = [];
  const open = (file: string, pragmas: string, readOnly = false) => {
    const connection = sqliteConnection(new DatabaseSync(file, { readOnly }));
    opened.push(connection);
    connection.sqlite.exec(pragmas);
    return connection;
  };
  let eventFile: SqliteEvents | undefined;
  const closeAll = () => opened.toReversed().forEach((connection) => connection.close());
  try {
    const writer = open(
      path,
      'PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL; PRAGMA foreign_keys = ON; PRAGMA busy_timeout = 5000',
    );
    migrateRecords(writer, path, box);
    const root = sqliteSql({
      writer,
      openReader: () => open(path, 'PRAGMA busy_timeout = 5000', true),
      onError,
    });
    // A lease of a server that has ended: no other server uses this directory.
    await root.run('UPDATE leases SET operations = 0, expires_at = 0 WHERE expires_at > 0');
    const context: Omit<TableContext, 'sql'> = { box, specs: sealedSpecs(box), now, ageing };
    const key = await secretTable({ ...context, sql: root }).get('audit');

    const keep = options.keepEvents;
    const opening = await openSqliteEvents(join(directory, 'events.db'), {
      key,
      keep,
      now,
      ageing,
      onError,
    });
    eventFile = opening;
    const { log: events, chain } = opening;
    await fulfilPromises();

    return buildRecords({
      driver: 'sqlite',
      shared: false,
      context,
      root,
      transaction: (work) => root.transaction(work),
      events,
      async promise(sql, event, atMs) {
        await sql.run('DELETE FROM promised_events WHERE number <= ?', chain.fulfilled());
        const row = await sql.get<{ number: number }>(
          'INSERT INTO promised_events (at, event) VALUES (?, ?) RETURNING number',
          atMs,
          JSON.stringify(event),
        );
        return row!.number;
      },
      async backup(to) {
        // Events last: the events of what the records report are then in the copy, or promised.
        await writer.backup(join(to, 'records.db'));
        await opening.backup(join(to, 'events.db'));
      },
      async close() {
        await root.idle();
        await opening.close();
        closeAll();
      },
    });

    /** Events that a killed server has promised and not written. */
    async function fulfilPromises(): Promise<void> {
      const left = await root.all<{ number: number; at: number; event: string }>(
        'SELECT number, at, event FROM promised_events WHERE number > ? ORDER BY number',
        chain.fulfilled(),
      );
      for (const row of left) await fulfil(events, row);
    }
  } catch (error) {
    await eventFile?.close();
    closeAll();
    throw error;
  }
}

function fulfil(events: EventLog, row: { number: number; at: number; event: string }): Promise<void> {
  const { promise: _, at, ...event } = promisedEvent(row);
  return events.fulfil(
    { ...event, data: JSON.parse(event.data) as Record<string, unknown> },
    { number: row.number, atMs: at },
  );
}
