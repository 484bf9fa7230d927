/**
 * Gaps of the chain: events that were pruned because their projects had more than are kept. One row replaces
 * each gap: its beginning and end, and the hash of its last event, so that the chain continues after it. Its
 * seal proves that this installation pruned it, and between which two hashes. Adjacent gaps are merged, and a
 * gap that reaches the anchor becomes part of it, so there are never more gaps than events.
 */
import type { DatabaseSync } from 'node:sqlite';
import { gapSeal, sameBytes, sealOf, type Link, type StoredEvent } from '../../records/events/chain.ts';
import { readAnchor, writeAnchor } from '../../records/sqlite/event-tables.ts';
import { faultOf, type Checkpoint } from '../../records/events/fault-of.ts';

/** The events from `first` to `id`, both included. */
export interface Gap extends Link {
  first: number;
  seal: Uint8Array;
}

const COLUMNS = 'first, last AS id, hash, seal';

export interface Gaps {
  /**
   * Removes consecutive events and records a gap for them. Returns false if they, or a gap beside them, are
   * not as they were recorded: then all stays, as evidence.
   */
  remove(first: number, last: number): boolean;
}

/** Call `remove` in a transaction. */
export function openGaps(sqlite: DatabaseSync, key: Uint8Array | undefined): Gaps {
  const event = sqlite.prepare('SELECT id, hash FROM events WHERE id = ?');
  const at = sqlite.prepare(`SELECT ${COLUMNS} FROM gaps WHERE first = ?`);
  const before = sqlite.prepare(`SELECT ${COLUMNS} FROM gaps WHERE first < ? ORDER BY first DESC LIMIT 1`);
  const insert = sqlite.prepare('INSERT INTO gaps (first, last, hash, seal) VALUES (?, ?, ?, ?)');
  const drop = sqlite.prepare('DELETE FROM gaps WHERE first BETWEEN ? AND ?');
  const eventsOf = sqlite.prepare('SELECT * FROM events WHERE id BETWEEN ? AND ? ORDER BY id');
  const checkpointsOf = sqlite.prepare('SELECT id, hash, seal FROM checkpoints WHERE id BETWEEN ? AND ?');
  const removeEvents = sqlite.prepare('DELETE FROM events WHERE id BETWEEN ? AND ?');
  const removeCheckpoints = sqlite.prepare('DELETE FROM checkpoints WHERE id BETWEEN ? AND ?');
  const linkOf = (row: unknown) => row as Link | undefined;
  const gapOf = (row: unknown) => row as Gap | undefined;

  /** The last of these events, if they are as recorded: a seal must not cover a forged event. */
  function walked(previous: Link, first: number, last: number): Link | undefined {
    const checkpoints = new Map(
      (checkpointsOf.all(first, last) as unknown as Checkpoint[]).map((one) => [one.id, one]),
    );
    let link = previous;
    for (const row of eventsOf.all(first, last) as unknown as StoredEvent[]) {
      if (faultOf(row, link, checkpoints.get(row.id), key)) return undefined;
      link = { id: row.id, hash: row.hash };
    }
    return link.id === last ? link : undefined;
  }

  return {
    remove(first, last) {
      const anchor = readAnchor(sqlite);
      if (!anchor || (key && !sameBytes(anchor.seal, sealOf(key, 'anchor', anchor)))) return false;
      const behind = (id: number) => (id === anchor.id ? anchor : linkOf(event.get(id)));
      const met = gapOf(before.get(first));
      const preceding = met?.id === first - 1 ? met : undefined;
      const start = preceding?.first ?? first;
      const previous = behind(start - 1);
      if (!previous || (preceding && !isOwnGap(preceding, previous, key))) return false;
      const removed = walked(preceding ?? previous, first, last);
      const following = gapOf(at.get(last + 1));
      if (!removed || (following && !isOwnGap(following, removed, key))) return false;
      const { id, hash } = following ?? removed;
      if (start === anchor.id + 1) {
        writeAnchor(sqlite, { id, hash }, key);
        drop.run(start, id);
      } else {
        drop.run(start, id);
        insert.run(
          start,
          id,
          hash,
          key ? gapSeal(key, start, previous.hash, { id, hash }) : new Uint8Array(0),
        );
      }
      removeEvents.run(first, last);
      removeCheckpoints.run(first, last);
      return true;
    },
  };
}

/** All gaps after this position; none in a log of an earlier version. */
export function readGaps(sqlite: DatabaseSync): (first: number) => Gap | undefined {
  const known = sqlite.prepare("SELECT 1 FROM sqlite_schema WHERE name = 'gaps'").get() !== undefined;
  if (!known) return () => undefined;
  const select = sqlite.prepare(`SELECT ${COLUMNS} FROM gaps WHERE first = ?`);
  return (first) => select.get(first) as Gap | undefined;
}

/** Whether this installation made a gap at this position. Without the key that is unknown. */
export function isOwnGap(gap: Gap, previous: Link, key: Uint8Array | undefined): boolean {
  if (gap.id < gap.first) return false;
  return key === undefined || sameBytes(gap.seal, gapSeal(key, gap.first, previous.hash, gap));
}
