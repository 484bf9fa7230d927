/**
 * The event log on a chain in a database: what appends, what reads, and what prunes and seals, put together.
 */
import { inBackground } from '../../lib/in-background.ts';
import { appendEvents } from './append-events.ts';
import { CHECKPOINT_EVERY } from './chain.ts';
import { writeCheckpoint, type ChainDriver } from './event-chain.ts';
import { eventPositions } from './event-positions.ts';
import { eventReaders } from './event-readers.ts';
import type { EventRecords, EventRetention, NewEvent } from './events.ts';
import { eventPruner } from './prune-events.ts';
import { readEvents } from './read-events.ts';
import { verifyEvents } from './verify-events.ts';
import { waitingEvent } from './waiting-event.ts';

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

export async function openEventLog(driver: ChainDriver, options: EventLogOptions): Promise<EventLog> {
  const { key, keep = {}, now, ageing, onError } = options;
  const { sql } = driver;
  const pruner = eventPruner({ key, keep, ageing, shared: !driver.exclusive });
  const head = await sql.transaction((tx) => driver.lockHead(tx));
  let sealedId = head.id;
  let pruning: NodeJS.Timeout | undefined;
  /** While the chain is verified nothing is pruned. */
  let pinned = 0;

  const lastId = async () => (driver.exclusive ? appending.head.id : driver.highestId(sql));
  const reading = readEvents(sql, lastId);
  const readers = eventReaders({ driver, head, list: reading.list, lastId, onError });
  const appending = appendEvents(driver, {
    head,
    key,
    now,
    onError,
    async onWritten(rows, end) {
      for (const row of rows) pruner.added(row.project);
      const sealed = rows.findLast((row) => row.id % CHECKPOINT_EVERY === 0);
      if (sealed) {
        sealedId = sealed.id;
        pruning ??= setTimeout(() => inBackground(tend(), onError), 0).unref();
      }
      await readers.appended(rows, end);
    },
  });

  async function tend({ wholly = false } = {}): Promise<void> {
    clearTimeout(pruning);
    pruning = undefined;
    if (await log.prune()) {
      if (wholly) while (await log.prune());
      else pruning = setTimeout(() => inBackground(tend(), onError), PRUNE_AGAIN_MS).unref();
    }
    const end = appending.head;
    if (end.id <= sealedId) return;
    await writeCheckpoint(sql, end, now(), key);
    sealedId = end.id;
  }

  const tending = setInterval(() => {
    inBackground(tend(), onError);
    if (!driver.exclusive) inBackground(log.flush(), onError);
  }, TEND_EVERY_MS).unref();

  const log: EventLog = {
    append: (event) => appending.add(waitingEvent(event, now())),
    fulfil: (event, { number, atMs }) =>
      // Where records and events share a database, the promise itself is taken from there.
      driver.exclusive ? appending.add({ ...waitingEvent(event, atMs), promise: number }) : appending.drain(),
    flush: appending.flush,
    ...reading,
    follow: readers.follow,
    listen: readers.listen,
    lastId,
    ...eventPositions(sql, lastId),
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
        const end = driver.exclusive ? appending.head : await driver.lockHead(tx);
        return pruner.prune(tx, end.id);
      });
    },
    async close() {
      clearInterval(tending);
      try {
        await appending.close();
        await tend({ wholly: true });
      } catch (error) {
        onError(error);
      }
      clearTimeout(pruning);
      readers.close();
    },
  };
  return log;
}
