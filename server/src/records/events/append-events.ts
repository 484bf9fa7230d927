import { ignoreFailure, inBackground } from '../../lib/in-background.ts';
import { CHECKPOINT_EVERY, chainHash, type Link, type StoredEvent } from './chain.ts';
import { writeCheckpoint, type ChainDriver, type WaitingEvent } from './event-chain.ts';
import { waitingEvent } from './waiting-event.ts';

/**
 * One loop that appends: it takes what waits and writes it in one transaction. So events that arrive together
 * cost one commit, and the order of ids is the order of commits.
 */
export interface EventAppending {
  /** The end of the chain, as far as this process knows. */
  readonly head: Link;
  /** Resolves when it is written, or waits for the next attempt after a failure. */
  add(event: WaitingEvent): Promise<void>;
  /** Takes promises from the records, unless it waits to try again after a failure. Never rejects. */
  drain(): Promise<void>;
  /** Writes what waits, and takes promises. Rejects if that cannot be written. */
  flush(): Promise<void>;
  /** Writes what waits, and tries no more after a failure. Rejects if that cannot be written. */
  close(): Promise<void>;
}

export interface AppendOptions {
  /** The end of the chain when the log is opened. */
  head: Link;
  /** Seals checkpoints. */
  key: Uint8Array | undefined;
  now(): number;
  onError(error: unknown): void;
  /** Called after each commit, before those who wait for it. */
  onWritten(rows: readonly StoredEvent[], end: Link): Promise<void>;
}

interface Written {
  rows: readonly StoredEvent[];
  end: Link;
}

interface Pending {
  event: WaitingEvent;
  settled(): void;
}

const RETRY_MS = 1_000;
const MOST_WAITING = 10_000;
const BATCH = 200;

export function appendEvents(driver: ChainDriver, options: AppendOptions): EventAppending {
  const { key, now, onError, onWritten } = options;
  const { sql } = driver;
  const waiting: Pending[] = [];
  let lost = 0;
  /** Whether promises in the records are to be looked for. */
  let promisesDue = false;
  let writing: Promise<void> | undefined;
  let retry: NodeJS.Timeout | undefined;
  let closed = false;
  let head = options.head;

  /** One statement is a transaction by itself: that saves most of what a single event costs. */
  const isPlain = (batch: readonly Pending[]): boolean =>
    driver.exclusive &&
    batch.length === 1 &&
    batch[0]!.event.promise === undefined &&
    (head.id + 1) % CHECKPOINT_EVERY !== 0;

  async function insertOne(event: WaitingEvent): Promise<Written> {
    const row = linked(head, event);
    await driver.insert(sql, [row]);
    return { rows: [row], end: row };
  }

  function insertAll(batch: readonly Pending[]): Promise<Written> {
    return sql.transaction(async (tx) => {
      let link = driver.exclusive ? head : await driver.lockHead(tx);
      const promised = await driver.takePromises(tx);
      const events = [...promised, ...batch.map(({ event }) => event)];
      if (events.length === 0) return { rows: [], end: link };
      const rows: StoredEvent[] = [];
      for (const event of events) {
        const row = linked(link, event);
        link = { id: row.id, hash: row.hash };
        rows.push(row);
      }
      await driver.insert(tx, rows);
      for (const row of rows)
        if (row.id % CHECKPOINT_EVERY === 0) await writeCheckpoint(tx, row, row.at, key);
      await driver.moveHead(tx, link, events);
      return { rows, end: link };
    });
  }

  async function writeBatch(): Promise<void> {
    const batch = waiting.slice(0, BATCH);
    const { rows, end } = isPlain(batch) ? await insertOne(batch[0]!.event) : await insertAll(batch);
    head = end;
    driver.appended?.(batch.map(({ event }) => event));
    waiting.splice(0, batch.length);
    await onWritten(rows, end);
    for (const { settled } of batch) settled();
  }

  /** The loop that writes, one at a time. Its failure goes to `report` of the caller that began it. */
  function write(report: (error: unknown) => void = ignoreFailure): Promise<void> {
    writing ??= (async () => {
      try {
        while (waiting.length > 0 || promisesDue || lost > 0) {
          if (waiting.length === 0 && lost > 0) {
            const data = { events: lost };
            waiting.push({ event: waitingEvent({ type: 'audit.lost', data }, now()), settled() {} });
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

  return {
    get head() {
      return head;
    },
    add,
    async drain() {
      promisesDue = true;
      if (retry !== undefined) return;
      await write(onError).catch(ignoreFailure);
    },
    async flush() {
      promisesDue = true;
      await write();
    },
    async close() {
      closed = true;
      clearTimeout(retry);
      await write();
    },
  };
}

function linked({ id: before, hash }: Link, waiting: WaitingEvent): StoredEvent {
  const { promise: _, ...event } = waiting;
  const id = before + 1;
  return { id, ...event, hash: chainHash(hash, { id, ...event }) };
}
