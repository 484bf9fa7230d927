/**
 * The snapshots of all projects: as records, in the backend and in the archive store.
 *
 * A snapshot is recorded before it is taken and before it is removed, so a snapshot that was never
 * acknowledged to a caller is found and removed.
 */
import { CayError, isCayError, type SandboxId, type SnapshotId, type SnapshotRef } from '@cay/sdk/protocol';
import type { SandboxRow } from '../../records/tables/sandbox-row.ts';
import type { SnapshotRow } from '../../records/tables/snapshot-row.ts';
import type { Tables } from '../../records/tables/tables.ts';
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
  /** Rejects `not_found`. */
  resolve(on: Tables, project: string, ref: SnapshotRef, sandbox?: SandboxId): Promise<SnapshotRow>;
  /**
   * Fetches it from the archive store if it is there, and pins it while the task runs. Rejects `not_found` if
   * it was removed since the row was read.
   */
  using<T>(
    row: SnapshotRow,
    task: (row: SnapshotRow) => Promise<T>,
    options?: { beyondQuota?: boolean },
  ): Promise<T>;
  /** Whether it is the base of a sandbox, or a template is made of it. */
  isNeeded(id: SnapshotId): Promise<boolean>;
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
  const isGone = async (id: SandboxId) => (await sandboxes.get(id)) === undefined;

  /** Whether no sandbox but the parent has anything of a fork's capture any more. */
  async function hasNoChildren({ id, sandbox }: SnapshotRow): Promise<boolean> {
    for (const child of await snapshots.children(id))
      if (child.sandbox !== sandbox && !(await isGone(child.sandbox))) return false;
    return true;
  }

  /** The snapshots without a caller's wish from `base` up to the root. */
  async function ancestors(base: SnapshotId | null): Promise<SnapshotRow[]> {
    const rows: SnapshotRow[] = [];
    for (let id = base; id !== null;) {
      const row = await snapshots.get(id);
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
    resolve: (on, project, ref, sandbox) => resolveSnapshot(on.snapshots, project, ref, sandbox),

    async using(given, task, { beyondQuota = false } = {}) {
      using _ = pins.pin(given.id);
      // Read after it is pinned: a removal has seen the pin, or is seen here.
      const row = await snapshots.get(given.id);
      if (row?.state !== 'kept') throw new CayError('not_found', `Snapshot "${given.id}" does not exist`);
      return await task(row.here ? row : await fetcher.fetch(row, { beyondQuota }));
    },

    isNeeded: async (id) => (await sandboxes.basedOn(id)).length > 0 || (await templates.of(id)).length > 0,

    async dropUnneeded(rows) {
      for (const { id } of rows) {
        const row = await snapshots.get(id);
        if (row?.state !== 'kept' || (await registry.isNeeded(id)) || pins.isPinned(id)) continue;
        try {
          await registry.drop(row, undefined, 'unneeded');
        } catch (error) {
          if (!isCayError(error, 'failed_precondition') && !isCayError(error, 'conflict')) onError(error);
        }
      }
    },

    async dropAbandoned(row) {
      const all = await snapshots.list(row ? { project: row.project, sandbox: row.id } : {});
      const own = all.filter(isAutomatic);
      // Ancestors are collected before the snapshots that lead to them are removed.
      const maybeForks = row ? [...own, ...(await ancestors(row.base))] : own;
      // The snapshot of an archiving has no use once the sandbox has gone on.
      const useless: SnapshotRow[] = [];
      for (const each of own)
        if (each.cause === 'archive' || (each.cause !== 'fork' && (await isGone(each.sandbox))))
          useless.push(each);
      await registry.dropUnneeded(useless);
      const childless: SnapshotRow[] = [];
      for (const each of maybeForks)
        if (each.cause === 'fork' && (await hasNoChildren(each))) childless.push(each);
      await registry.dropUnneeded(childless);
    },
  };
  return registry;
}

/** Taken by the server itself: no caller named it or asked for it. */
function isAutomatic({ name, cause }: SnapshotRow): boolean {
  return name === null && cause !== 'request' && cause !== 'import';
}
