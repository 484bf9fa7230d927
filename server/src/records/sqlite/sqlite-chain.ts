import { readHead, type ChainDriver, type WaitingEvent } from '../events/event-chain.ts';
import type { Sql } from '../sql/sql.ts';
import type { SqliteSql } from './sqlite-sql.ts';

export interface SqliteChain extends ChainDriver {
  /** The number of the last promise whose event is written. */
  fulfilled(): number;
}

/** The chain in `events.db`, which this process has to itself. */
export async function sqliteChain(sql: SqliteSql): Promise<SqliteChain> {
  const row = await sql.get<{ number: number }>('SELECT number FROM kept_promise');
  let fulfilled = row?.number ?? 0;
  if (!row) await sql.run('INSERT INTO kept_promise (number) VALUES (0)');
  return {
    sql,
    exclusive: true,
    fulfilled: () => fulfilled,
    lockHead: readHead,
    // They are in `records.db`, and are handed over one by one.
    takePromises: async () => [],
    async moveHead(tx, _head, events) {
      const last = lastPromise(events);
      if (last !== undefined) await tx.run('UPDATE kept_promise SET number = ?', last);
    },
    appended(events) {
      fulfilled = lastPromise(events) ?? fulfilled;
    },
    async insert(tx, events) {
      for (const { id, at, type, project, sandbox, key, outcome, data, hash } of events)
        await tx.run(
          `INSERT INTO events (id, at, type, project, sandbox, key, outcome, data, hash)
           VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)`,
          ...[id, at, type, project, sandbox, key, outcome, data, hash],
        );
    },
    highestId,
    // Nothing is pruned meanwhile, and what is appended is verified too.
    snapshot: (work) => work(sql),
  };
}

export async function highestId(sql: Sql): Promise<number> {
  const { last } = (await sql.get<{ last: number }>(
    `SELECT max(coalesce((SELECT seq FROM sqlite_sequence WHERE name = 'events'), 0),
                coalesce((SELECT max(id) FROM checkpoints), 0)) AS last`,
  ))!;
  return last;
}

function lastPromise(events: readonly WaitingEvent[]): number | undefined {
  return events.findLast(({ promise }) => promise !== undefined)?.promise;
}
