/**
 * Stretches of the chain whose events were pruned because their projects had more than is kept. A gap is one
 * row: its first and last id and the hash of its last event, so that the chain continues behind it. Its seal
 * proves that this installation pruned there, and between which two hashes. Adjacent gaps become one, and a
 * gap next to the anchor becomes part of it, so there are never more gaps than events.
 */
import type { Sql } from '../sql/sql.ts';
import { gapSeal, sameBytes, sealOf, type Link, type StoredEvent } from './chain.ts';
import { readAnchor, writeAnchor } from './event-chain.ts';
import { faultOf, type Checkpoint } from './fault-of.ts';

/** Stands for the events from `first` to `id`. */
export interface Gap extends Link {
  first: number;
  seal: Uint8Array;
}

const SELECT = 'SELECT first, last AS id, hash, seal FROM gaps';

export function gapAt(sql: Sql, first: number): Promise<Gap | undefined> {
  return sql.get<Gap>(`${SELECT} WHERE first = ?`, first);
}

/**
 * In a transaction: removes consecutive events and records a gap in their place. Resolves false, and removes
 * nothing, if the events or the gaps beside them are not as they were recorded.
 */
export async function removeEvents(
  sql: Sql,
  key: Uint8Array | undefined,
  first: number,
  last: number,
): Promise<boolean> {
  const anchor = await readAnchor(sql);
  if (!anchor || (key && !sameBytes(anchor.seal, sealOf(key, 'anchor', anchor)))) return false;
  const met = await sql.get<Gap>(`${SELECT} WHERE first < ? ORDER BY first DESC LIMIT 1`, first);
  const preceding = met?.id === first - 1 ? met : undefined;
  const start = preceding?.first ?? first;
  const previous =
    start - 1 === anchor.id
      ? anchor
      : await sql.get<Link>('SELECT id, hash FROM events WHERE id = ?', start - 1);
  if (!previous || (preceding && !isOwnGap(preceding, previous, key))) return false;
  const removed = await walk(sql, key, preceding ?? previous, first, last);
  const following = await gapAt(sql, last + 1);
  if (!removed || (following && !isOwnGap(following, removed, key))) return false;
  const { id, hash } = following ?? removed;
  await sql.run('DELETE FROM gaps WHERE first BETWEEN ? AND ?', start, id);
  if (start === anchor.id + 1) await writeAnchor(sql, { id, hash }, key);
  else {
    await sql.run(
      'INSERT INTO gaps (first, last, hash, seal) VALUES (?, ?, ?, ?)',
      start,
      id,
      hash,
      key ? gapSeal(key, start, previous.hash, { id, hash }) : new Uint8Array(0),
    );
  }
  await sql.run('DELETE FROM events WHERE id BETWEEN ? AND ?', first, last);
  await sql.run('DELETE FROM checkpoints WHERE id BETWEEN ? AND ?', first, last);
  return true;
}

/** The last of the events, if all are as they were recorded: a seal must not cover changed events. */
async function walk(
  sql: Sql,
  key: Uint8Array | undefined,
  previous: Link,
  first: number,
  last: number,
): Promise<Link | undefined> {
  const range = 'WHERE id BETWEEN ? AND ?';
  const checkpoints = new Map(
    (await sql.all<Checkpoint>(`SELECT id, hash, seal FROM checkpoints ${range}`, first, last)).map((one) => [
      one.id,
      one,
    ]),
  );
  let link = previous;
  for (const row of await sql.all<StoredEvent>(`SELECT * FROM events ${range} ORDER BY id`, first, last)) {
    if (faultOf(row, link, checkpoints.get(row.id), key)) return undefined;
    link = { id: row.id, hash: row.hash };
  }
  return link.id === last ? link : undefined;
}

/** Whether this installation made the gap behind this place. Without the key every gap passes. */
export function isOwnGap(gap: Gap, previous: Link, key: Uint8Array | undefined): boolean {
  if (gap.id < gap.first) return false;
  return key === undefined || sameBytes(gap.seal, gapSeal(key, gap.first, previous.hash, gap));
}
