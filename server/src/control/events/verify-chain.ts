import type { DatabaseSync } from 'node:sqlite';
import type { AuditVerdict } from '@cay/sdk/protocol';
import { hex, sameBytes, sealOf, type Link, type StoredEvent } from '../../records/events/chain.ts';
import { readAnchor } from '../../records/sqlite/event-tables.ts';
import { faultOf, type Checkpoint } from '../../records/events/fault-of.ts';
import { isOwnGap, readGaps } from './gaps.ts';

const PAGE = 1000;

/**
 * Walks the chain from the anchor to the last event, and returns where it breaks first. Yields to other work
 * in between; events that are appended meanwhile are walked too. Without the key checkpoints are compared
 * with the events, and their seals are not verified.
 *
 * Nothing may be pruned meanwhile.
 */
export async function verifyChain(sqlite: DatabaseSync, key: Uint8Array | undefined): Promise<AuditVerdict> {
  const anchor = readAnchor(sqlite);
  const walked = { events: 0, checkpoints: 0, gaps: 0, first: null as number | null };
  const gapAt = readGaps(sqlite);
  let link: Link = anchor ?? { id: 0, hash: new Uint8Array(32) };
  const verdict = (broken?: { id: number; reason: string }): AuditVerdict => ({
    ok: broken === undefined,
    ...walked,
    last: link.id,
    head: hex(link.hash),
    pruned: anchor?.id ?? 0,
    sealed: key !== undefined,
    ...(broken && { broken }),
  });
  if (!anchor) return verdict({ id: 1, reason: 'where the chain begins is not recorded' });
  if (key && !sameBytes(anchor.seal, sealOf(key, 'anchor', anchor)))
    return verdict({
      id: anchor.id,
      reason: 'what stands for the pruned events was not written by this installation',
    });

  /** Walks over the gaps after this position. Returns their fault, if they have one. */
  function overGaps(): string | undefined {
    for (let gap = gapAt(link.id + 1); gap; gap = gapAt(link.id + 1)) {
      if (!isOwnGap(gap, link, key))
        return 'what stands for pruned events was not written by this installation';
      link = { id: gap.id, hash: gap.hash };
      walked.gaps++;
    }
    return undefined;
  }

  const page = sqlite.prepare('SELECT * FROM events WHERE id > ? ORDER BY id LIMIT ?');
  const sealed = sqlite.prepare('SELECT id, hash, seal FROM checkpoints WHERE id > ? AND id <= ?');
  for (;;) {
    const rows = page.all(link.id, PAGE) as unknown as StoredEvent[];
    if (rows.length === 0) break;
    const checkpoints = new Map(
      (sealed.all(link.id, rows.at(-1)!.id) as unknown as Checkpoint[]).map((one) => [one.id, one]),
    );
    for (const row of rows) {
      const forged = overGaps();
      if (forged) return verdict({ id: link.id + 1, reason: forged });
      const reason = faultOf(row, link, checkpoints.get(row.id), key);
      if (reason) return verdict({ id: row.id === link.id + 1 ? row.id : link.id + 1, reason });
      walked.first ??= row.id;
      walked.events++;
      if (checkpoints.delete(row.id)) walked.checkpoints++;
      link = { id: row.id, hash: row.hash };
    }
    await new Promise((resolve) => setImmediate(resolve));
  }
  const forged = overGaps();
  if (forged) return verdict({ id: link.id + 1, reason: forged });
  const { last } = sqlite
    .prepare(
      "SELECT max(ifnull((SELECT seq FROM sqlite_sequence WHERE name = 'events'), 0), ifnull((SELECT max(id) FROM checkpoints), 0)) AS last",
    )
    .get() as { last: number };
  if (last > link.id)
    return verdict({ id: link.id + 1, reason: `events up to ${last} were recorded, and are missing` });
  return verdict();
}
