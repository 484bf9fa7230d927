import type { Retention, SnapshotId } from '@cay/sdk/protocol';
import type { Context } from './context.ts';
import type { Keeping } from './keeping.ts';

export interface Turn {
  id: SnapshotId;
  turn: number;
  name: string | null;
  createdAtMs: number;
}

/**
 * The turns that a retention lets go: those beyond the last so many, and those that are too old. Never one with a name, never
 * the newest, never one that something needs.
 */
export function prunable(
  turns: readonly Turn[],
  { keepLast, maxAgeMs }: Retention,
  nowMs: number,
  needed: (id: SnapshotId) => boolean,
): SnapshotId[] {
  return turns
    .toSorted((one, other) => other.turn - one.turn)
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

/** Prunes turns as each sandbox's retention says, after every turn and every so often for their age. */
export function openRetaining(context: Context, keeping: Keeping): Retaining {
  const { now, onError, sandboxes, snapshots } = context;
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
    const turns = all.flatMap(({ id, turn, name, createdAtMs }) => (turn === null ? [] : [{ id, turn, name, createdAtMs }]));
    const going = new Set<SnapshotId>(prunable(turns, row.retention, now(), keeping.needed));
    await keeping.dropUnneeded(all.filter(({ id }) => going.has(id)));
    await keeping.dropLeft(row);
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
