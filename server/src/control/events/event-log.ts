/**
 * The event log: what happened, to which sandbox, with which key, and with what outcome. Readers follow it
 * live and resume after any event that is still kept. Its events form a hash chain: see `chain.ts`.
 *
 * It is a database of its own with `synchronous = NORMAL`: no event is lost when the server dies, the last
 * few can be lost when the machine does, and a command does not wait for the disk. The server has the file to
 * itself, which saves SQLite the locking around every event.
 */
import { DatabaseSync, backup } from 'node:sqlite';
import type { AuditEvent, AuditVerdict, CayEvent } from '@cay/sdk/protocol';
import { openClock } from '../../lib/clock.ts';
import { Broadcast } from '../../lib/broadcast.ts';
import { atOnce } from './at-once.ts';
import { boundedText } from '../../records/events/bounded-data.ts';
import { CHECKPOINT_EVERY, chainHash, hex, type Link, type StoredEvent } from '../../records/events/chain.ts';
import {
  prepareTables,
  readAnchor,
  readHead,
  readPromise,
  writeCheckpoint,
  writePromise,
} from '../../records/sqlite/event-tables.ts';
import { eventPositions } from './event-positions.ts';
import { openPruner } from './prune-events.ts';
import type { AuditQuery, EventQuery, EventRetention, NewEvent } from '../../records/events/events.ts';
import { verifyChain } from './verify-chain.ts';

export type { AuditQuery, EventQuery, EventRetention, NewEvent } from '../../records/events/events.ts';

/**
 * The number and time of an event that is stored in the records until it is written here: see `promised-
 * events.ts`.
 */
export interface EventPromise {
  number: number;
  atMs: number;
}

export interface EventLog {
  /**
   * Never throws: an event that cannot be written is reported to `onError`. It waits in memory until it can
   * be written. If too many wait, some are dropped, and an event says how many.
   */
  append(event: NewEvent, promise?: EventPromise): void;
  /** The number of the last promised event that is written. */
  kept(): number;
  list(query: EventQuery): CayEvent[];
  /** The events after `after` that are kept, then new ones, until the signal is aborted. */
  follow(query: Omit<EventQuery, 'limit'> & { signal?: AbortSignal }): AsyncIterable<CayEvent>;
  /**
   * Calls back with every event that is written. Errors of the callback go to `onError`. Returns a function
   * that ends the subscription.
   */
  listen(listener: (event: Pick<CayEvent, 'type' | 'project' | 'sandbox'>) => void): () => void;
  lastId(): number;
  /** The id before the first event that happened at this time or later. */
  before(atMs: number): number;
  /** The id before the last `count` events. */
  beforeLast(count: number, query: Pick<EventQuery, 'project' | 'sandbox'>): number;
  /** Events with their hashes, oldest first, up to the newest one at the time of the call. */
  export(query: AuditQuery): AsyncIterable<AuditEvent>;
  verify(): Promise<AuditVerdict>;
  /** Prunes some events beyond the retention. Runs by itself. Returns whether more may be left to prune. */
  prune(): boolean;
  /** A copy of the whole log, as it is at one moment. */
  backup(path: string): Promise<void>;
  close(): void;
}

export interface EventLogOptions {
  /** Seals checkpoints, so that the chain cannot be forged without it. */
  key?: Uint8Array;
  keep?: EventRetention;
  now?(): number;
  /** The clock for the age of events. Default: one that cannot be set forward while the log is open. */
  ageing?(): number;
  onError?(error: unknown): void;
}

const PRUNE_AGAIN_MS = 25;
const TEND_EVERY_MS = 60_000;
const TRY_AGAIN_MS = 1_000;
const MOST_WAITING = 10_000;
/** How many ids one query reads. */
const WINDOW = 500;

type Waiting = Omit<StoredEvent, 'id' | 'hash'> & { promise?: number };

export function openEventLog(path: string, options: EventLogOptions = {}): EventLog {
  const { key, keep = {}, now = Date.now, onError = () => {} } = options;
  const ageing = options.ageing ?? options.now ?? openClock().ageing;
  const sqlite = new DatabaseSync(path);
  sqlite.exec(
    'PRAGMA locking_mode = EXCLUSIVE; PRAGMA journal_mode = WAL; PRAGMA synchronous = NORMAL; PRAGMA busy_timeout = 5000',
  );
  prepareTables(sqlite, key);
  const insert = sqlite.prepare(
    'INSERT INTO events (id, at, type, project, sandbox, key, outcome, data, hash) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)',
  );
  // One statement for each index (sandbox, project) and one without: SQLite chooses an index when it prepares
  // a statement, before it knows the values.
  const selectAll = sqlite.prepare('SELECT * FROM events WHERE id > ?1 ORDER BY id LIMIT ?2');
  const selectOfProject = sqlite.prepare(
    'SELECT * FROM events WHERE project = ?3 AND id > ?1 ORDER BY id LIMIT ?2',
  );
  const selectOf = sqlite.prepare(
    'SELECT * FROM events WHERE sandbox = ?4 AND id > ?1 AND (?2 IS NULL OR project = ?2) ORDER BY id LIMIT ?3',
  );
  const filter =
    '(?3 IS NULL OR type = ?3) AND (?4 IS NULL OR key = ?4) AND (?5 IS NULL OR at >= ?5) AND (?6 IS NULL OR at < ?6)';
  const exportAll = sqlite.prepare(
    `SELECT * FROM events WHERE id > ?1 AND id <= ?2 AND ${filter} ORDER BY id`,
  );
  const exportOf = sqlite.prepare(
    `SELECT * FROM events WHERE sandbox = ?7 AND id > ?1 AND id <= ?2 AND ${filter} ORDER BY id`,
  );
  const live = new Broadcast<CayEvent>();
  const listeners = new Set<(event: Waiting) => void>();
  const waiting: Waiting[] = [];
  let lost = 0;
  let again: NodeJS.Timeout | undefined;
  let head: Link = readHead(sqlite);
  let sealedId = head.id;
  let kept = readPromise(sqlite);
  /** While the whole chain is being read, nothing is pruned. */
  let pinned = 0;
  const pruner = openPruner(sqlite, { key, keep, ageing });
  let pruning: NodeJS.Timeout | undefined;

  function write(event: Waiting): void {
    const { at, type, project, sandbox, key: by, outcome, data, promise } = event;
    const id = head.id + 1;
    const next: Link = { id, hash: chainHash(head.hash, { id, ...event }) };
    const add = () => insert.run(id, at, type, project, sandbox, by, outcome, data, next.hash);
    const seals = id % CHECKPOINT_EVERY === 0;
    if (!seals && promise === undefined) add();
    else {
      atOnce(sqlite, () => {
        add();
        if (seals) writeCheckpoint(sqlite, next, at, key);
        if (promise !== undefined) writePromise(sqlite, promise);
      });
      if (seals) sealedId = id;
      kept = promise ?? kept;
    }
    head = next;
    pruner.added(project);
    if (live.hasReaders) live.send(shown({ id, ...event, hash: next.hash }));
    for (const listener of listeners) listener(event);
  }

  function wait(event: Waiting): void {
    if (waiting.length < MOST_WAITING) waiting.push(event);
    else lost++;
    again ??= setTimeout(flush, TRY_AGAIN_MS).unref();
  }

  function flush(): void {
    again = undefined;
    try {
      while (waiting.length > 0) {
        write(waiting[0]!);
        waiting.shift();
      }
      if (lost > 0) write(stored({ type: 'audit.lost', data: { events: lost } }, now()));
      lost = 0;
    } catch {
      // The error was reported when the first event began to wait.
      again = setTimeout(flush, TRY_AGAIN_MS).unref();
    }
  }

  function tend({ wholly = false } = {}): void {
    clearTimeout(pruning);
    pruning = undefined;
    try {
      if (log.prune()) {
        if (wholly) while (log.prune());
        else pruning = setTimeout(tend, PRUNE_AGAIN_MS).unref();
      }
      if (head.id > sealedId) writeCheckpoint(sqlite, head, now(), key);
      sealedId = head.id;
    } catch (error) {
      onError(error);
    }
  }

  const timer = setInterval(() => tend(), TEND_EVERY_MS).unref();
  const log: EventLog = {
    append(event, promise) {
      const one: Waiting = {
        ...stored(event, promise?.atMs ?? now()),
        ...(promise && { promise: promise.number }),
      };
      if (waiting.length > 0 || lost > 0) return wait(one);
      try {
        write(one);
      } catch (error) {
        onError(error);
        if (sqlite.isOpen) wait(one);
        return;
      }
      if (head.id % CHECKPOINT_EVERY === 0) pruning ??= setTimeout(tend, 0).unref();
    },
    kept: () => kept,
    list({ after = 0, project, sandbox, limit = 1000 }) {
      const rows =
        sandbox !== undefined
          ? selectOf.all(after, project ?? null, limit, sandbox)
          : project !== undefined
            ? selectOfProject.all(after, limit, project)
            : selectAll.all(after, limit);
      return (rows as unknown as StoredEvent[]).map(shown);
    },
    async *follow({ after, project, sandbox, signal }) {
      // Subscribed before the log is read, so that no event falls between the two.
      const news = live.subscribe({ signal });
      let last = after ?? log.lastId();
      for (;;) {
        const page = log.list({ after: last, project, sandbox });
        yield* page;
        if (page.length === 0) break;
        last = page.at(-1)!.id;
      }
      for await (const event of news) {
        if (
          event.id <= last ||
          (project && event.project !== project) ||
          (sandbox && event.sandbox !== sandbox)
        )
          continue;
        yield event;
      }
    },
    listen(listener) {
      const guarded = (event: Waiting) => {
        try {
          listener(event);
        } catch (error) {
          onError(error);
        }
      };
      listeners.add(guarded);
      return () => listeners.delete(guarded);
    },
    lastId: () => head.id,
    ...eventPositions(sqlite, () => head.id),
    async *export({ sandbox, type, key: by, sinceMs, untilMs }) {
      const end = head.id;
      for (let after = readAnchor(sqlite)?.id ?? 0; after < end; after += WINDOW) {
        const asked = [
          after,
          Math.min(after + WINDOW, end),
          type ?? null,
          by ?? null,
          sinceMs ?? null,
          untilMs ?? null,
        ] as const;
        const rows = sandbox === undefined ? exportAll.all(...asked) : exportOf.all(...asked, sandbox);
        for (const row of rows as unknown as StoredEvent[]) yield { ...shown(row), hash: hex(row.hash) };
        // Yields to other work, however few events match.
        if (rows.length > 0 || (after / WINDOW) % 16 === 0)
          await new Promise((resolve) => setImmediate(resolve));
      }
    },
    async verify() {
      pinned++;
      try {
        return await verifyChain(sqlite, key);
      } finally {
        pinned--;
      }
    },
    prune: () => pinned === 0 && pruner.prune(head.id),
    async backup(to) {
      await backup(sqlite, to);
    },
    close() {
      clearInterval(timer);
      clearTimeout(again);
      if (waiting.length > 0) flush();
      clearTimeout(again);
      tend({ wholly: true });
      clearTimeout(pruning);
      live.close();
      sqlite.close();
    },
  };
  return log;
}

function stored(
  { type, project = null, sandbox = null, key = null, outcome = 'ok', data = {} }: NewEvent,
  at: number,
): Waiting {
  return { at, type, project, sandbox, key, outcome, data: boundedText(data) };
}

function shown(row: StoredEvent): CayEvent {
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
