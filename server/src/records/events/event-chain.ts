/**
 * The chain of events in a database: events, the anchor and the gaps of what was pruned, checkpoints. Written
 * once for all drivers; a `ChainDriver` is what differs between them.
 */
import type { Sql } from '../sql/sql.ts';
import { GENESIS, sealOf, type Link, type StoredEvent } from './chain.ts';

/** An event that is not in the chain yet. */
export type WaitingEvent = Omit<StoredEvent, 'id' | 'hash'> & {
  /** The number of its promise in the records. */
  promise?: number;
};

export interface ChainDriver {
  readonly sql: Sql;
  /** Whether no other process appends to this chain, so that its end may be remembered in memory. */
  readonly exclusive: boolean;
  /** In a transaction: the end of the chain. No other server appends until the transaction has ended. */
  lockHead(tx: Sql): Promise<Link>;
  /** In the same transaction: committed promises that are in no chain yet, oldest first. Removes them. */
  takePromises(tx: Sql): Promise<WaitingEvent[]>;
  /** In the same transaction: the events were appended, and this is the new end. */
  moveHead(tx: Sql, head: Link, events: readonly WaitingEvent[]): Promise<void>;
  insert(tx: Sql, events: readonly StoredEvent[]): Promise<void>;
  /** The transaction is committed. */
  appended?(events: readonly WaitingEvent[]): void;
  /** The highest id that was ever given to an event. */
  highestId(sql: Sql): Promise<number>;
  /** Reads that see one state of the chain, however long they take. */
  snapshot<T>(work: (sql: Sql) => Promise<T>): Promise<T>;
}

const UNSEALED = new Uint8Array(0);

export async function writeAnchor(sql: Sql, link: Link, key: Uint8Array | undefined): Promise<void> {
  await sql.run('DELETE FROM anchor');
  await sql.run(
    'INSERT INTO anchor (id, hash, seal) VALUES (?, ?, ?)',
    link.id,
    link.hash,
    key ? sealOf(key, 'anchor', link) : UNSEALED,
  );
}

/** An existing checkpoint stays: if it differs, the chain is broken, and verification finds it. */
export async function writeCheckpoint(
  sql: Sql,
  link: Link,
  atMs: number,
  key: Uint8Array | undefined,
): Promise<void> {
  await sql.run(
    'INSERT INTO checkpoints (id, at, hash, seal) VALUES (?, ?, ?, ?) ON CONFLICT DO NOTHING',
    link.id,
    atMs,
    link.hash,
    key ? sealOf(key, 'checkpoint', link) : UNSEALED,
  );
}

export function readAnchor(sql: Sql): Promise<(Link & { seal: Uint8Array }) | undefined> {
  return sql.get<Link & { seal: Uint8Array }>('SELECT id, hash, seal FROM anchor');
}

/** The place behind which the next event is added. */
export async function readHead(sql: Sql): Promise<Link> {
  const last = await sql.get<Link>('SELECT id, hash FROM events ORDER BY id DESC LIMIT 1');
  const gap = await sql.get<Link>('SELECT last AS id, hash FROM gaps ORDER BY first DESC LIMIT 1');
  if (gap && gap.id > (last?.id ?? 0)) return gap;
  return last ?? (await readAnchor(sql)) ?? GENESIS;
}
