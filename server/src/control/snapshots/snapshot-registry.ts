/**
 * The snapshots of all projects: as records, in the backend and in the archive store.
 *
 * A snapshot is recorded before it is taken and before it is removed, so a snapshot that was never
 * acknowledged to a caller is found and removed.
 */
import { isCayError, type SandboxId, type SnapshotId, type SnapshotRef } from '@cay/sdk/protocol';
import type { SandboxRow } from '../../records/sandboxes.ts';
import type { SnapshotRow } from '../../records/snapshots.ts';
import type { Core } from '../core.ts';
import type { SandboxMaker } from '../sandboxes/make-sandbox.ts';
import { dropSnapshot, type DropSnapshot } from './drop-snapshot.ts';
import { openFetcher } from './fetch-snapshot.ts';
import { openPins, type Pins } from './pins.ts';
import { resolveSnapshot } from './resolve-snapshot.ts';
import { takeSnapshot, type TakeSnapshot } from './take-snapshot.ts';

export interface SnapshotRegistry extends Pick<Pins, 'pin'> {
  take: TakeSnapshot;
  drop: DropSnapshot;
  /** Throws `not_found`. */
  resolve(project: string, ref: SnapshotRef, sandbox?: SandboxId): SnapshotRow;
  /** Fetches it from the archive store if it is there, and pins it while the task runs. */
  using<T>(
    row: SnapshotRow,
    task: (row: SnapshotRow) => Promise<T>,
    options?: { beyondQuota?: boolean },
  ): Promise<T>;
  /** Whether it is the base of a sandbox, or a template is made of it. */
  isNeeded(id: SnapshotId): boolean;
  /** Removes those that nothing needs. Best effort: refusals are ignored, other errors are reported. */
  dropUnneeded(rows: SnapshotRow[]): Promise<void>;
  /**
   * Removes snapshots that no caller asked to keep and nothing can use: their sandbox is gone, or all
   * children of the fork are. Considers all snapshots, or those around one sandbox.
   */
  dropAbandoned(row?: SandboxRow): Promise<void>;
}

export function openSnapshotRegistry(
  core: Parameters<typeof takeSnapshot>[0] & Pick<Core, 'archives'> & { maker: Pick<SandboxMaker, 'making'> },
): SnapshotRegistry {
  const { onError, maker } = core;
  const { sandboxes, snapshots, templates } = core.records;
  const pins = openPins();
  const fetcher = openFetcher(core);
  const isGone = (id: SandboxId) => sandboxes.get(id) === undefined;

  /** The snapshots without a caller's wish from `base` up to the root. */
  function ancestors(base: SnapshotId | null): SnapshotRow[] {
    const rows: SnapshotRow[] = [];
    for (let id = base; id !== null;) {
      const row = snapshots.get(id);
      if (!row) break;
      if (isAutomatic(row)) rows.push(row);
      id = row.parent;
    }
    return rows;
  }

  const registry: SnapshotRegistry = {
    take: takeSnapshot(core),
    drop: dropSnapshot({ ...core, fetcher, maker, pins }),
    pin: pins.pin,
    resolve: (project, ref, sandbox) => resolveSnapshot(snapshots, project, ref, sandbox),

    async using(row, task, { beyondQuota = false } = {}) {
      using _ = pins.pin(row.id);
      return await task(row.here ? row : await fetcher.fetch(row, { beyondQuota }));
    },

    isNeeded: (id) => sandboxes.standingOn(id).length > 0 || templates.of(id).length > 0,

    async dropUnneeded(rows) {
      for (const { id } of rows) {
        const row = snapshots.get(id);
        if (row?.state !== 'kept' || registry.isNeeded(id) || pins.isPinned(id)) continue;
        try {
          await registry.drop(row, undefined, 'unneeded');
        } catch (error) {
          if (!isCayError(error, 'failed_precondition') && !isCayError(error, 'conflict')) onError(error);
        }
      }
    },

    async dropAbandoned(row) {
      const own = snapshots.list(row ? { project: row.project, sandbox: row.id } : {}).filter(isAutomatic);
      // Ancestors are collected before the snapshots that lead to them are removed.
      const maybeForks = row ? [...own, ...ancestors(row.base)] : own;
      // The snapshot of an archiving has no use once the sandbox has gone on.
      await registry.dropUnneeded(
        own.filter(({ sandbox, cause }) => cause === 'archive' || (cause !== 'fork' && isGone(sandbox))),
      );
      await registry.dropUnneeded(
        maybeForks.filter(
          ({ id, sandbox, cause }) =>
            cause === 'fork' &&
            snapshots.children(id).every((child) => child.sandbox === sandbox || isGone(child.sandbox)),
        ),
      );
    },
  };
  return registry;
}

/** Taken by the server itself: no caller named it or asked for it. */
function isAutomatic({ name, cause }: SnapshotRow): boolean {
  return name === null && cause !== 'request' && cause !== 'import';
}
