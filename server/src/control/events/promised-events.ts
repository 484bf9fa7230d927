/**
 * Events that are written if, and only if, the change they describe is recorded.
 *
 * Records and events are two databases, and a server may die between the two writes. So an event of a
 * transaction of the records is first stored in that same transaction, as a promise with a number. After the
 * commit it is written to the log together with the number. A server that opens writes the promises with
 * higher numbers first.
 */
import type { Database } from '../../records/database.ts';
import type { EventLog, NewEvent } from './event-log.ts';

export function promisedEvents(database: Database, log: EventLog, now: () => number = Date.now): EventLog {
  const left = database.all<{ number: number; at: number; event: string }>(
    'SELECT number, at, event FROM promised_events WHERE number > ? ORDER BY number',
    log.kept(),
  );
  for (const { number, at, event } of left) log.append(JSON.parse(event) as NewEvent, { number, atMs: at });
  return {
    ...log,
    append(event) {
      if (!database.inTransaction) return log.append(event);
      const atMs = now();
      database.run('DELETE FROM promised_events WHERE number <= ?', log.kept());
      database.run('INSERT INTO promised_events (at, event) VALUES (?, ?)', atMs, JSON.stringify(event));
      const { number } = database.get<{ number: number }>('SELECT last_insert_rowid() AS number')!;
      database.afterCommit(() => log.append(event, { number, atMs }));
    },
  };
}
