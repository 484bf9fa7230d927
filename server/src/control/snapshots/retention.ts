import type { Retention, SnapshotId } from '@cay/sdk/protocol';
import type { Context } from '../context.ts';
import type { SnapshotRegistry } from './snapshot-registry.ts';

/** A snapshot that is one of a row: a turn, or what a sandbox was before a rollback. */
export interface Kept {
  id: SnapshotId;
  /** The greater the later. */
  order: number;
  name: string | null;
  createdAtMs: number;
}

/**
 * Those of a row that a retention lets go: those beyond the last so many, and those that are too old. Never
 * one with a name, never the newest, never one that something needs.
 */
export function prunable(
  row: readonly Kept[],
  { keepLast, maxAgeMs }: Retention,
  nowMs: number,
  needed: (id: SnapshotId) => boolean,
): SnapshotId[] {
  return row
    .toSorted((one, other) => other.order - one.order)
    .filter(({ name, id, createdAtMs }, index) => {
      const beyond = keepLast !== null && index >= keepLast;
      const old = maxAgeMs !== null && nowMs - createdAtMs > maxAgeMs;
      return index > 0 && name === null && (beyond || old) && !needed(id);
    })
    .map(({ id }) => id);
}

export interface Retaining {
  /** Its turns or its retention have changed: prunes soon. */
  changed(sandbox: string): void;
  /** Settles when what was begun is done. */
  settled(): Promise<void>;
  close(): void;
}

const LOOK_EVERY_MS = 60_000;

/**
 * Prunes turns and what rollbacks have kept as each sandbox's retention says, after each of them and every so
 * often for their age.
 */
export function openRetaining(context: Context, registry: SnapshotRegistry): Retaining {
  const { clock, onError, sandboxes, snapshots } = context;
  const pruning = new Map<string, Promise<void>>();
  const again = new Set<string>();
  const timer = setInterval(() => {
    try {
      for (const { id } of sandboxes.withRetention()) retaining.changed(id);
    } catch (error) {
      onError(error);
    }
  }, LOOK_EVERY_MS);
  timer.unref();

  async function prune(sandbox: string): Promise<void> {
    const row = sandboxes.get(sandbox);
    if (!row?.retention) return;
    const all = snapshots.list({ project: row.project, sandbox });
    const turns = all.flatMap(({ turn, ...rest }) => (turn === null ? [] : [{ ...rest, order: turn }]));
    const rollbacks = snapshots.beforeRollbacks(sandbox).map((kept, index) => ({ ...kept, order: -index }));
    const { retention } = row;
    const going = new Set<SnapshotId>(
      [turns, rollbacks].flatMap((some) => prunable(some, retention, clock.ageing(), registry.needed)),
    );
    await registry.dropUnneeded(all.filter(({ id }) => going.has(id)));
    await registry.dropLeft(row);
  }

  const retaining: Retaining = {
    changed(sandbox) {
      // What is being done may have looked before this change.
      if (pruning.has(sandbox)) return void again.add(sandbox);
      const pruned = Promise.resolve()
        .then(() => prune(sandbox))
        .catch(onError)
        .finally(() => {
          pruning.delete(sandbox);
          if (again.delete(sandbox)) retaining.changed(sandbox);
        });
      pruning.set(sandbox, pruned);
    },
    async settled() {
      again.clear();
      await Promise.all(pruning.values());
    },
    close: () => clearInterval(timer),
  };
  return retaining;
}
