/**
 * The event log on a chain in a database. One loop appends: it takes what waits, writes it in one transaction
 * and tells readers. So events that arrive together cost one commit, and the order of ids is the order of
 * commits.
 */
import type { CayEvent } from '@cay/sdk/protocol';
import { Broadcast } from '../../lib/broadcast.ts';
import { ignoreFailure, inBackground } from '../../lib/in-background.ts';
import type { SqlValue } from '../sql/sql.ts';
import { boundedText } from './bounded-data.ts';
import { CHECKPOINT_EVERY, chainHash, hex, type Link, type StoredEvent } from './chain.ts';
import { readAnchor, writeCheckpoint, type ChainDriver, type WaitingEvent } from './event-chain.ts';
import { eventPositions } from './event-positions.ts';
import type { EventQuery, EventRecords, EventRetention, NewEvent } from './events.ts';
import { eventPruner } from './prune-events.ts';
import { verifyEvents } from './verify-events.ts';

export interface EventLog extends EventRecords {
  /** Appends an event that was promised in a transaction. Never rejects. */
  fulfil(event: NewEvent, promise: { number: number; atMs: number }): Promise<void>;
  /** Writes what waits, and takes promises of servers that are gone. Rejects if that cannot be written. */
  flush(): Promise<void>;
  close(): Promise<void>;
}

export interface EventLogOptions {
  /** Seals checkpoints, so that the chain cannot be rewritten without it. */
  key: Uint8Array | undefined;
  keep?: EventRetention;
  now(): number;
  ageing(): number;
  onError(error: unknown): void;
}

const PRUNE_AGAIN_MS = 25;
const TEND_EVERY_MS = 60_000;
const RETRY_MS = 1_000;
/** How soon events of other servers are seen. */
const POLL_MS = 300;
const MOST_WAITING = 10_000;
const BATCH = 200;
/** Ids that one read of `export` covers. */
const WINDOW = 500;

interface Pending {
  event: WaitingEvent;
  settled(): void;
}

export async function openEventLog(driver: ChainDriver, options: EventLogOptions): Promise<EventLog> {
  const { key, keep = {}, now, ageing, onError } = options;
  const { sql } = driver;
  const live = new Broadcast<CayEvent>();
  const listeners = new Set<(event: Pick<CayEvent, 'type' | 'project' | 'sandbox'>) => void>();
  const pruner = eventPruner({ key, keep, ageing, shared: !driver.exclusive });
  const waiting: Pending[] = [];
  let lost = 0;
  /** Whether promises in the records are to be looked for. */
  let promisesDue = false;
  let writing: Promise<void> | undefined;
  let retry: NodeJS.Timeout | undefined;
  let pruning: NodeJS.Timeout | undefined;
  let closed = false;
  /** The end of the chain, as far as this process knows. */
  let head: Link = await sql.transaction((tx) => driver.lockHead(tx));
  let sealedId = head.id;
  /** The last event that readers have got. */
  let announced = head.id;
  /** While the chain is verified nothing is pruned. */
  let pinned = 0;

  async function writeBatch(): Promise<void> {
    const batch = waiting.slice(0, BATCH);
    const { rows, end } = await sql.transaction(async (tx) => {
      let link = driver.exclusive ? head : await driver.lockHead(tx);
      const promised = await driver.takePromises(tx);
      const events = [...promised, ...batch.map(({ event }) => event)];
      if (events.length === 0) return { rows: [], end: link };
      const written: StoredEvent[] = [];
      for (const { promise: _, ...event } of events) {
        const id = link.id + 1;
        const row = { id, ...event, hash: chainHash(link.hash, { id, ...event }) };
        link = { id, hash: row.hash };
        written.push(row);
      }
      await driver.insert(tx, written);
      for (const row of written)
        if (row.id % CHECKPOINT_EVERY === 0) await writeCheckpoint(tx, row, row.at, key);
      await driver.moveHead(tx, link, events);
      return { rows: written, end: link };
    });
    head = end;
    driver.appended?.(batch.map(({ event }) => event));
    waiting.splice(0, batch.length);
    for (const row of rows) pruner.added(row.project);
    const sealed = rows.findLast((row) => row.id % CHECKPOINT_EVERY === 0);
    if (sealed) {
      sealedId = sealed.id;
      pruning ??= setTimeout(() => inBackground(tend(), onError), 0).unref();
    }
    if (driver.exclusive) rows.forEach(announce);
    else await tail();
    for (const { settled } of batch) settled();
  }

  function announce(row: StoredEvent): void {
    announced = row.id;
    if (live.hasReaders) live.send(show(row));
    for (const listener of listeners) listener(row);
  }

  /** Tells readers of events in the order of the chain, those of other servers among them. */
  async function tail(): Promise<void> {
    if (!live.hasReaders && listeners.size === 0) {
      announced = head.id;
      return;
    }
    for (;;) {
      const rows = await sql.all<StoredEvent>(
        'SELECT * FROM events WHERE id > ? ORDER BY id LIMIT ?',
        announced,
        WINDOW,
      );
      for (const row of rows) if (row.id > announced) announce(row);
      if (rows.length < WINDOW) return;
    }
  }

  /** The loop that writes, one at a time. Its failure goes to `report` of the caller that began it. */
  function write(report: (error: unknown) => void = ignoreFailure): Promise<void> {
    writing ??= (async () => {
      try {
        while (waiting.length > 0 || promisesDue || lost > 0) {
          if (waiting.length === 0 && lost > 0) {
            const data = { events: lost };
            waiting.push({ event: stored({ type: 'audit.lost', data }, now()), settled() {} });
            lost = 0;
          }
          promisesDue = false;
          await writeBatch();
        }
      } catch (error) {
        // Promises that were not taken are looked for again.
        if (!driver.exclusive) promisesDue = true;
        report(error);
        wait();
        throw error;
      } finally {
        writing = undefined;
      }
    })();
    return writing;
  }

  /** Resolves when it is written, or waits for the next attempt after a failure. */
  function add(event: WaitingEvent): Promise<void> {
    if (waiting.length >= MOST_WAITING) {
      lost++;
      return Promise.resolve();
    }
    if (retry !== undefined) {
      waiting.push({ event, settled() {} });
      return Promise.resolve();
    }
    const done = new Promise<void>((settled) => waiting.push({ event, settled }));
    if (!writing) inBackground(write(onError), ignoreFailure);
    return done;
  }

  /** What waits is no longer waited for: it is written when that is possible again. */
  function wait(): void {
    for (const { settled } of waiting) settled();
    if (closed) return;
    retry ??= setTimeout(() => {
      retry = undefined;
      inBackground(write(), ignoreFailure);
    }, RETRY_MS).unref();
  }

  async function tend({ wholly = false } = {}): Promise<void> {
    clearTimeout(pruning);
    pruning = undefined;
    if (await log.prune()) {
      if (wholly) while (await log.prune());
      else pruning = setTimeout(() => inBackground(tend(), onError), PRUNE_AGAIN_MS).unref();
    }
    if (head.id <= sealedId) return;
    const end = head;
    await writeCheckpoint(sql, end, now(), key);
    sealedId = end.id;
  }

  const tending = setInterval(() => {
    inBackground(tend(), onError);
    if (!driver.exclusive) inBackground(log.flush(), onError);
  }, TEND_EVERY_MS).unref();
  const polling = driver.exclusive
    ? undefined
    : setInterval(() => {
        if (live.hasReaders || listeners.size > 0) inBackground(tail(), ignoreFailure);
      }, POLL_MS).unref();

  const log: EventLog = {
    append: (event) => add(stored(event, now())),
    fulfil: (event, { number, atMs }) =>
      // Where records and events share a database, the promise itself is taken from there.
      driver.exclusive ? add({ ...stored(event, atMs), promise: number }) : drain(),
    async flush() {
      promisesDue = true;
      await write();
    },
    list: async (query) => (await sql.all<StoredEvent>(...select(query))).map(show),
    async *follow({ after, project, sandbox, signal }) {
      // Subscribed before the log is read, so that no event falls between the two.
      const isFirst = !live.hasReaders && listeners.size === 0;
      const news = live.subscribe({ signal });
      const end = await log.lastId();
      if (isFirst) announced = Math.max(announced, end);
      let last = after ?? end;
      for (;;) {
        const page = await log.list({ after: last, project, sandbox });
        yield* page;
        if (page.length === 0) break;
        last = page.at(-1)!.id;
      }
      for await (const event of news) {
        if (
          event.id <= last ||
          (project !== undefined && event.project !== project) ||
          (sandbox !== undefined && event.sandbox !== sandbox)
        )
          continue;
        yield event;
      }
    },
    listen(listener) {
      const guarded: typeof listener = (event) => {
        try {
          listener(event);
        } catch (error) {
          onError(error);
        }
      };
      listeners.add(guarded);
      return () => listeners.delete(guarded);
    },
    lastId: async () => (driver.exclusive ? head.id : driver.highestId(sql)),
    ...eventPositions(sql, () => log.lastId()),
    async *export({ sandbox, type, key: by, sinceMs, untilMs }) {
      const end = await log.lastId();
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
        for (const row of rows) yield { ...show(row), hash: hex(row.hash) };
        // The event loop runs in between, however few events match.
        if (rows.length > 0 || (after / WINDOW) % 16 === 0)
          await new Promise((resolve) => setImmediate(resolve));
      }
    },
    async verify() {
      pinned++;
      try {
        return await driver.snapshot((on) => verifyEvents(on, key, () => driver.highestId(on)));
      } finally {
        pinned--;
      }
    },
    async prune() {
      if (pinned > 0) return false;
      return sql.transaction(async (tx) => {
        // Locked, so that two servers do not prune at once.
        const end = driver.exclusive ? head : await driver.lockHead(tx);
        return pruner.prune(tx, end.id);
      });
    },
    async close() {
      closed = true;
      clearInterval(tending);
      clearInterval(polling);
      clearTimeout(retry);
      try {
        await write();
        await tend({ wholly: true });
      } catch (error) {
        onError(error);
      }
      clearTimeout(pruning);
      live.close();
    },
  };

  /** Unless it waits to try again after a failure. */
  async function drain(): Promise<void> {
    promisesDue = true;
    if (retry !== undefined) return;
    await write(onError).catch(ignoreFailure);
  }

  return log;
}

/** One statement for each filter, because SQLite chooses the index when it prepares. */
function select({ after = 0, project, sandbox, limit = 1000 }: EventQuery): [string, ...SqlValue[]] {
  const conditions = ['id > ?'];
  const values: SqlValue[] = [after];
  if (sandbox !== undefined) {
    conditions.push('sandbox = ?');
    values.push(sandbox);
  }
  if (project !== undefined) {
    conditions.push('project = ?');
    values.push(project);
  }
  return [`SELECT * FROM events WHERE ${conditions.join(' AND ')} ORDER BY id LIMIT ?`, ...values, limit];
}

function stored(
  { type, project = null, sandbox = null, key = null, outcome = 'ok', data = {} }: NewEvent,
  at: number,
): WaitingEvent {
  return { at, type, project, sandbox, key, outcome, data: boundedText(data) };
}

/** A promise that was found in the records. */
export function promisedEvent(row: { at: number; event: string; number?: number }): WaitingEvent {
  return {
    ...stored(JSON.parse(row.event) as NewEvent, row.at),
    ...(row.number !== undefined && { promise: row.number }),
  };
}

function show(row: StoredEvent): CayEvent {
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
