/**
 * The event log: what happened, to which sandbox, by whose key. Readers follow it live and resume
 * after any event that is still kept.
 *
 * It is a database of its own with `synchronous = NORMAL`: an event is never lost by the server's
 * death, only the last few could be by the machine's, and a command does not wait for the disk.
 * The server has the file to itself, which spares SQLite the locking around every event.
 */
import { DatabaseSync } from 'node:sqlite';
import type { CayEvent } from '@cay/sdk/protocol';
import { Broadcast } from '../../lib/broadcast.ts';

export type NewEvent = Pick<CayEvent, 'type'> & Partial<Pick<CayEvent, 'project' | 'sandbox' | 'key' | 'data'>>;

export interface EventQuery {
  /** Events after this id. */
  after?: number;
  project?: string;
  sandbox?: string;
  limit?: number;
}

export interface EventLog {
  /** What happened has happened: a log that cannot be written is told to `onError` and not to the caller. */
  append(event: NewEvent): void;
  list(query: EventQuery): CayEvent[];
  /** What is kept after `after`, then what happens, until the signal. */
  follow(query: Omit<EventQuery, 'limit'> & { signal?: AbortSignal }): AsyncIterable<CayEvent>;
  lastId(): number;
  close(): void;
}

interface StoredEvent {
  id: number;
  at: number;
  type: string;
  project: string | null;
  sandbox: string | null;
  key: string | null;
  data: string;
}

export interface EventLogOptions {
  now?(): number;
  onError?(error: unknown): void;
}

const KEPT = 1_000_000;
const PRUNE_EVERY = 10_000;

export function openEventLog(path: string, { now = Date.now, onError = () => {} }: EventLogOptions = {}): EventLog {
  const sqlite = new DatabaseSync(path);
  sqlite.exec(`
    PRAGMA locking_mode = EXCLUSIVE; PRAGMA journal_mode = WAL; PRAGMA synchronous = NORMAL; PRAGMA busy_timeout = 5000;
    CREATE TABLE IF NOT EXISTS events (
      id INTEGER PRIMARY KEY AUTOINCREMENT,
      at INTEGER NOT NULL,
      type TEXT NOT NULL,
      project TEXT,
      sandbox TEXT,
      key TEXT,
      data TEXT NOT NULL
    ) STRICT;
    CREATE INDEX IF NOT EXISTS events_sandbox ON events (sandbox, id);
  `);
  const insert = sqlite.prepare('INSERT INTO events (at, type, project, sandbox, key, data) VALUES (?, ?, ?, ?, ?, ?)');
  const select = sqlite.prepare(
    'SELECT * FROM events WHERE id > ?1 AND (?2 IS NULL OR project = ?2) AND (?3 IS NULL OR sandbox = ?3) ORDER BY id LIMIT ?4',
  );
  const live = new Broadcast<CayEvent>();
  const log: EventLog = {
    append({ type, project = null, sandbox = null, key = null, data = {} }) {
      const at = now();
      try {
        const { lastInsertRowid } = insert.run(at, type, project, sandbox, key, JSON.stringify(data));
        const event: CayEvent = { id: Number(lastInsertRowid), atMs: at, type, project, sandbox, key, data };
        if (event.id % PRUNE_EVERY === 0) sqlite.prepare('DELETE FROM events WHERE id <= ?').run(event.id - KEPT);
        live.send(event);
      } catch (error) {
        onError(error);
      }
    },
    list: ({ after = 0, project, sandbox, limit = 1000 }) =>
      (select.all(after, project ?? null, sandbox ?? null, limit) as unknown as StoredEvent[]).map(parse),
    async *follow({ after, project, sandbox, signal }) {
      // Subscribed before the log is read, so that nothing falls between the two.
      const news = live.subscribe({ signal });
      let last = after ?? log.lastId();
      for (;;) {
        const page = log.list({ after: last, project, sandbox });
        yield* page;
        if (page.length === 0) break;
        last = page.at(-1)!.id;
      }
      for await (const event of news) {
        if (event.id <= last || (project && event.project !== project) || (sandbox && event.sandbox !== sandbox)) continue;
        yield event;
      }
    },
    lastId: () => (sqlite.prepare('SELECT max(id) AS id FROM events').get() as { id: number | null }).id ?? 0,
    close() {
      live.close();
      sqlite.close();
    },
  };
  return log;
}

function parse(row: StoredEvent): CayEvent {
  return {
    id: row.id,
    atMs: row.at,
    type: row.type,
    project: row.project,
    sandbox: row.sandbox,
    key: row.key,
    data: JSON.parse(row.data) as Record<string, unknown>,
  };
}
