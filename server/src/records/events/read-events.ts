import type { CayEvent } from '@cay/sdk/protocol';
import type { Sql, SqlValue } from '../sql/sql.ts';
import { hex, type StoredEvent } from './chain.ts';
import { readAnchor } from './event-chain.ts';
import type { EventQuery, EventRecords } from './events.ts';
import { ofWhom } from './of-whom.ts';

/** Ids that one read covers. */
export const WINDOW = 500;

/** Reads of what is in the log. */
export function readEvents(sql: Sql, lastId: () => Promise<number>): Pick<EventRecords, 'list' | 'export'> {
  return {
    list: async (query) => (await sql.all<StoredEvent>(...select(query))).map(showEvent),

    async *export({ sandbox, type, key: by, sinceMs, untilMs }) {
      const end = await lastId();
      const conditions: string[] = ['id > ?', 'id <= ?'];
      const values: SqlValue[] = [];
      const where = (condition: string, value: SqlValue | undefined) => {
        if (value === undefined) return;
        conditions.push(condition);
        values.push(value);
      };
      where('sandbox = ?', sandbox);
      where('type = ?', type);
      where('key = ?', by);
      where('at >= ?', sinceMs);
      where('at < ?', untilMs);
      const text = `SELECT * FROM events WHERE ${conditions.join(' AND ')} ORDER BY id`;
      for (let after = (await readAnchor(sql))?.id ?? 0; after < end; after += WINDOW) {
        const rows = await sql.all<StoredEvent>(text, after, Math.min(after + WINDOW, end), ...values);
        for (const row of rows) yield { ...showEvent(row), hash: hex(row.hash) };
        // The event loop runs in between, however few events match.
        if (rows.length > 0 || (after / WINDOW) % 16 === 0)
          await new Promise((resolve) => setImmediate(resolve));
      }
    },
  };
}

/** One statement for each filter, because SQLite chooses the index when it prepares. */
function select({ after = 0, project, sandbox, limit = 1000 }: EventQuery): [string, ...SqlValue[]] {
  const [condition, ...values] = ofWhom({ project, sandbox });
  return [`SELECT * FROM events WHERE id > ? AND ${condition} ORDER BY id LIMIT ?`, after, ...values, limit];
}

export function showEvent(row: StoredEvent): CayEvent {
  return {
    id: row.id,
    atMs: row.at,
    type: row.type,
    project: row.project,
    sandbox: row.sandbox,
    key: row.key,
    outcome: row.outcome,
    data: JSON.parse(row.data) as Record<string, unknown>,
  };
}
