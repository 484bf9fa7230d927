import type { Retention, SnapshotId } from '@cay/sdk/protocol';
import type { Core } from '../core.ts';
import type { SnapshotRegistry } from './snapshot-registry.ts';

/** One of a series of snapshots: the turns of a sandbox, or what it was before its rollbacks. */
export interface Kept {
  id: SnapshotId;
  /** Greater is later. */
  order: number;
  name: string | null;
  createdAtMs: number;
}

/**
 * The snapshots of a series that its retention does not keep: all but the last `keepLast`, and those older
 * than `maxAgeMs`. Never one with a name, never the newest, never one that something needs.
 */
export function prunable(
  series: readonly Kept[],
  { keepLast, maxAgeMs }: Retention,
  nowMs: number,
  isNeeded: (id: SnapshotId) => boolean = () => false,
): SnapshotId[] {
  return series
    .toSorted((one, other) => other.order - one.order)
    .filter(({ name, id, createdAtMs }, index) => {
      const beyond = keepLast !== null && index >= keepLast;
      const old = maxAgeMs !== null && nowMs - createdAtMs > maxAgeMs;
      return index > 0 && name === null && (beyond || old) && !isNeeded(id);
    })
    .map(({ id }) => id);
}

export interface Retaining {
  /** A sandbox has a new turn, rollback or retention: prunes its snapshots soon. */
  changed(sandbox: string): void;
  /** Prunes every minute too, for the age of snapshots. */
  start(): void;
  /** Resolves when the pruning under way is done. */
  close(): Promise<void>;
}

const PRUNE_EVERY_MS = 60_000;

/** Prunes turns and the snapshots of rollbacks as each sandbox's retention says. */
export function openRetaining({
  clock,
  onError,
  records: { sandboxes, snapshots },
  registry,
}: Pick<Core, 'clock' | 'onError' | 'records'> & { registry: SnapshotRegistry }): Retaining {
  const underWay = new Map<string, Promise<void>>();
  /** Sandboxes that changed while they were being pruned. */
  const changed = new Set<string>();
  let timer: NodeJS.Timeout | undefined;
  let listing: Promise<void> | undefined;
  let closed = false;

  async function prune(sandbox: string): Promise<void> {
    const row = await sandboxes.get(sandbox);
    if (!row?.retention) return;
    const { retention } = row;
    const all = await snapshots.list({ project: row.project, sandbox });
    const turns = all.flatMap(({ turn, ...rest }) => (turn === null ? [] : [{ ...rest, order: turn }]));
    const before = await snapshots.beforeRollbacks(sandbox);
    const rollbacks = before.map((kept, index) => ({ ...kept, order: -index }));
    const going = new Set<SnapshotId>(
      [turns, rollbacks].flatMap((series) => prunable(series, retention, clock.ageing())),
    );
    // Those that something needs stay: that is looked at when each is dropped.
    await registry.dropUnneeded(all.filter(({ id }) => going.has(id)));
    await registry.dropAbandoned(row);
  }

  async function pruneAll(): Promise<void> {
    for (const { id } of await sandboxes.withRetention()) if (!closed) retaining.changed(id);
  }

  const retaining: Retaining = {
    changed(sandbox) {
      if (underWay.has(sandbox)) return void changed.add(sandbox);
      const pruned = Promise.resolve()
        .then(() => prune(sandbox))
        .catch(onError)
        .finally(() => {
          underWay.delete(sandbox);
          if (changed.delete(sandbox)) retaining.changed(sandbox);
        });
      underWay.set(sandbox, pruned);
    },
    start() {
      timer = setInterval(() => {
        listing = pruneAll().catch(onError);
      }, PRUNE_EVERY_MS).unref();
    },
    async close() {
      clearInterval(timer);
      closed = true;
      await listing;
      changed.clear();
      await Promise.all(underWay.values());
    },
  };
  return retaining;
}
