/**
 * Stretches of the chain whose events were pruned because their projects had more than is kept. Each is stood for by one row: where it
 * begins and ends, and the hash of its last event, so that the chain goes on behind it. Its seal says that it was this installation
 * that pruned there, and between which two hashes. Stretches that meet become one, and what meets the anchor becomes a part of it, so there are
 * never more of them than events that are kept.
 */
import type { DatabaseSync } from 'node:sqlite';
import { gapSeal, sameBytes, type Link } from './chain.ts';
import { readAnchor, writeAnchor } from './event-store.ts';

/** From the event after `first - 1` to `id`, both of which are gone. */
export interface Gap extends Link {
  first: number;
  seal: Uint8Array;
}

const COLUMNS = 'first, last AS id, hash, seal';

export interface Gaps {
  /** Removes events that follow one another, and lets a gap stand for them. False if the chain is broken there: then it stays as it is. */
  remove(first: number, last: number): boolean;
}

/** Preconditions: `remove` is called in a transaction. */
export function openGaps(sqlite: DatabaseSync, key: Uint8Array | undefined): Gaps {
  const event = sqlite.prepare('SELECT id, hash FROM events WHERE id = ?');
  const at = sqlite.prepare(`SELECT ${COLUMNS} FROM gaps WHERE first = ?`);
  const before = sqlite.prepare(`SELECT ${COLUMNS} FROM gaps WHERE first < ? ORDER BY first DESC LIMIT 1`);
  const insert = sqlite.prepare('INSERT INTO gaps (first, last, hash, seal) VALUES (?, ?, ?, ?)');
  const drop = sqlite.prepare('DELETE FROM gaps WHERE first BETWEEN ? AND ?');
  const removeEvents = sqlite.prepare('DELETE FROM events WHERE id BETWEEN ? AND ?');
  const removeCheckpoints = sqlite.prepare('DELETE FROM checkpoints WHERE id BETWEEN ? AND ?');
  const linkOf = (row: unknown) => row as Link | undefined;
  const gapOf = (row: unknown) => row as Gap | undefined;

  return {
    remove(first, last) {
      const preceding = gapOf(before.get(first));
      const start = preceding?.id === first - 1 ? preceding.first : first;
      const end = gapOf(at.get(last + 1)) ?? linkOf(event.get(last));
      const anchor = readAnchor(sqlite);
      if (!end || !anchor) return false;
      const { id, hash } = end;
      if (start === anchor.id + 1) {
        writeAnchor(sqlite, { id, hash }, key);
        drop.run(start, id);
      } else {
        const previous = linkOf(event.get(start - 1));
        if (!previous) return false;
        drop.run(start, id);
        insert.run(start, id, hash, key ? gapSeal(key, start, previous.hash, { id, hash }) : new Uint8Array(0));
      }
      removeEvents.run(first, last);
      removeCheckpoints.run(first, last);
      return true;
    },
  };
}

/** The gaps from here on, as an earlier version has none. */
export function readGaps(sqlite: DatabaseSync): (first: number) => Gap | undefined {
  const known = sqlite.prepare("SELECT 1 FROM sqlite_schema WHERE name = 'gaps'").get() !== undefined;
  if (!known) return () => undefined;
  const select = sqlite.prepare(`SELECT ${COLUMNS} FROM gaps WHERE first = ?`);
  return (first) => select.get(first) as Gap | undefined;
}

/** Whether a gap was made here, behind this place. Without the key nobody can tell. */
export function isOwnGap(gap: Gap, previous: Link, key: Uint8Array | undefined): boolean {
  if (gap.id < gap.first) return false;
  return key === undefined || sameBytes(gap.seal, gapSeal(key, gap.first, previous.hash, gap));
}
