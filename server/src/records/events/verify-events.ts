import type { AuditVerdict } from '@cay/sdk/protocol';
import type { Sql } from '../sql/sql.ts';
import { GENESIS, hex, sameBytes, sealOf, type Link, type StoredEvent } from './chain.ts';
import { readAnchor } from './event-chain.ts';
import { gapAt, isOwnGap } from './event-gaps.ts';
import { faultOf, type Checkpoint } from './fault-of.ts';

const PAGE = 1000;

/**
 * Walks the chain from the anchor to the last event, and reports the first place where it breaks. The event
 * loop runs between pages. Without the key seals are not checked.
 *
 * Preconditions: nothing is pruned meanwhile.
 */
export async function verifyEvents(
  sql: Sql,
  key: Uint8Array | undefined,
  highestId: () => Promise<number>,
): Promise<AuditVerdict> {
  const anchor = await readAnchor(sql);
  const walked = { events: 0, checkpoints: 0, gaps: 0, first: null as number | null };
  let link: Link = anchor ?? GENESIS;
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

  /** Steps over pruned events behind this place. Resolves what is wrong with them. */
  async function overGaps(): Promise<string | undefined> {
    for (let gap = await gapAt(sql, link.id + 1); gap; gap = await gapAt(sql, link.id + 1)) {
      if (!isOwnGap(gap, link, key))
        return 'what stands for pruned events was not written by this installation';
      link = { id: gap.id, hash: gap.hash };
      walked.gaps++;
    }
    return undefined;
  }

  for (;;) {
    const rows = await sql.all<StoredEvent>(
      'SELECT * FROM events WHERE id > ? ORDER BY id LIMIT ?',
      link.id,
      PAGE,
    );
    if (rows.length === 0) break;
    const checkpoints = new Map(
      (
        await sql.all<Checkpoint>(
          'SELECT id, hash, seal FROM checkpoints WHERE id > ? AND id <= ?',
          link.id,
          rows.at(-1)!.id,
        )
      ).map((one) => [one.id, one]),
    );
    for (const row of rows) {
      // A gap is looked for only where an id is missing.
      const forged = row.id === link.id + 1 ? undefined : await overGaps();
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
  const forged = await overGaps();
  if (forged) return verdict({ id: link.id + 1, reason: forged });
  // A gap that no walk comes to was put beside events that are there.
  const { count } = (await sql.get<{ count: number }>('SELECT count(*) AS count FROM gaps'))!;
  if (count !== walked.gaps)
    return verdict({
      id: link.id,
      reason: 'what stands for pruned events was not written by this installation',
    });
  const last = await highestId();
  if (last > link.id)
    return verdict({ id: link.id + 1, reason: `events up to ${last} were recorded, and are missing` });
  return verdict();
}
