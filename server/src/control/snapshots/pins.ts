import type { SnapshotId } from '@cay/sdk/protocol';

/** Snapshots that are in use by this server right now, and must not be removed. */
export interface Pins {
  /** Until the result is disposed of. A snapshot can be pinned several times. */
  pin(id: SnapshotId): Disposable;
  isPinned(id: SnapshotId): boolean;
}

export function openPins(): Pins {
  const counts = new Map<SnapshotId, number>();
  return {
    pin(id) {
      counts.set(id, (counts.get(id) ?? 0) + 1);
      return {
        [Symbol.dispose]() {
          const left = counts.get(id)! - 1;
          if (left === 0) counts.delete(id);
          else counts.set(id, left);
        },
      };
    },
    isPinned: (id) => counts.has(id),
  };
}
