import type { ChainDriver } from '../events/event-chain.ts';
import { GENESIS, type Link } from '../events/chain.ts';
import { promisedEvent } from '../events/waiting-event.ts';
import type { PostgresSql } from './postgres-sql.ts';

/**
 * The chain in the database of the records, which several servers append to. An append locks the row
 * `event_head`. Promises are moved from `promised_events` into the chain in the same transaction, by any
 * server, so that those of a server that has died are not left behind.
 *
 * Preconditions: transactions of `sql` are READ COMMITTED, so that each statement sees what was committed
 * before the lock was given.
 */
export function postgresChain(sql: PostgresSql): ChainDriver {
  return {
    sql,
    exclusive: false,
    async lockHead(tx) {
      return (await tx.get<Link>('SELECT id, hash FROM event_head FOR UPDATE')) ?? GENESIS;
    },
    async takePromises(tx) {
      const rows = await tx.all<{ number: number; at: number; event: string }>(
        `DELETE FROM promised_events WHERE number IN (SELECT number FROM promised_events ORDER BY number LIMIT 200)
         RETURNING number, at, event`,
      );
      return rows.toSorted((one, other) => one.number - other.number).map(promisedEvent);
    },
    async moveHead(tx, head) {
      await tx.run('UPDATE event_head SET id = ?, hash = ?', head.id, head.hash);
    },
    async insert(tx, events) {
      const row = '(?, ?, ?, ?, ?, ?, ?, ?, ?)';
      await tx.run(
        `INSERT INTO events (id, at, type, project, sandbox, key, outcome, data, hash)
         VALUES ${events.map(() => row).join(', ')}`,
        ...events.flatMap((event) => [
          event.id,
          event.at,
          event.type,
          event.project,
          event.sandbox,
          event.key,
          event.outcome,
          event.data,
          event.hash,
        ]),
      );
    },
    async highestId(on) {
      return (await on.get<Link>('SELECT id, hash FROM event_head'))?.id ?? 0;
    },
    snapshot: (work) => sql.snapshot(work),
  };
}
