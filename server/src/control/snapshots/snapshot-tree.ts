import type { SnapshotTree } from '@cay/sdk/protocol';
import type { SandboxRow } from '../../records/tables/sandbox-row.ts';
import { showSnapshot, type SnapshotRow } from '../../records/tables/snapshot-row.ts';

/**
 * The snapshot tree of a sandbox: all snapshots that are connected with its own by parents, and the sandboxes
 * based on them. Snapshots of one sandbox belong together even if those between them were removed.
 */
export function snapshotTree(
  sandbox: SandboxRow,
  sandboxes: readonly SandboxRow[],
  snapshots: readonly SnapshotRow[],
): SnapshotTree {
  const joined = new Map<string, Set<string>>();
  const join = (one: string, other: string) => {
    for (const [from, to] of [
      [one, other],
      [other, one],
    ] as const) {
      let known = joined.get(from);
      if (!known) joined.set(from, (known = new Set()));
      known.add(to);
    }
  };
  for (const { id, parent, sandbox: of } of snapshots) {
    join(id, of);
    if (parent !== null) join(id, parent);
  }
  for (const { id, base } of sandboxes) if (base !== null) join(id, base);

  const together = new Set([sandbox.id as string]);
  // Iterating a set includes members that are added meanwhile.
  for (const id of together) for (const other of joined.get(id) ?? []) together.add(other);

  const remaining = sandboxes.filter(({ id, state }) => together.has(id) && state !== 'destroying');
  const nodes = snapshots.filter(({ id }) => together.has(id)).toReversed();
  const known = new Set<string>(nodes.map(({ id }) => id));
  const show = ({ id, name, state }: SandboxRow) => ({ id, name, state });
  return {
    start: remaining.filter(({ base }) => base === null || !known.has(base)).map(show),
    nodes: nodes.map((row) => ({
      snapshot: showSnapshot(row),
      sandboxes: remaining.filter(({ base }) => base === row.id).map(show),
    })),
  };
}
