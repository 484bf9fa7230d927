/**
 * Brings the records of snapshots, the backend and the archive store together when the server opens: finishes
 * what was begun, records what was lost, and removes what no record knows.
 */
import { isCayError } from '@cay/sdk/protocol';
import type { Snapshotting } from '../../backends/backend.ts';
import type { SnapshotRow } from '../../records/tables/snapshot-row.ts';
import type { Core } from '../core.ts';
import { isOn, platformOf, split, survey, type Found } from '../placement/placement.ts';
import type { SnapshotRegistry } from '../snapshots/snapshot-registry.ts';

export async function recoverSnapshots(
  core: Pick<Core, 'archives' | 'backend' | 'onError' | 'recordEvent' | 'records'> & {
    registry: SnapshotRegistry;
  },
): Promise<void> {
  const { archives, backend, onError, registry } = core;
  const { leases, snapshots } = core.records;
  const verbs = backend.ability('snapshots');
  if (!verbs) return;
  const travel: Snapshotting = verbs;
  const look = () =>
    survey(backend, async (platform) => (await platform.ability('snapshots')?.snapshots()) ?? []);
  const { found, unsure } = await look();
  const { placed, misplaced } = split(backend, found, await snapshots.all());
  const unknown = new Map(placed.map(({ it, platform }) => [it.id, platform]));
  const missing: SnapshotRow[] = [];

  /** Removes a snapshot that was never acknowledged, or whose removal was begun. */
  async function remove(row: SnapshotRow): Promise<void> {
    try {
      await travel.removeSnapshot(row.id);
    } catch (error) {
      // The removal is refused now as it would have been then: the snapshot stays.
      if (row.state !== 'removing' || !isCayError(error, 'failed_precondition')) throw error;
      await snapshots.update(row.id, { state: 'kept' });
      return;
    }
    if (row.object !== null) await archives.store?.remove(row.object);
    await snapshots.delete(row.id);
  }

  /**
   * It is recorded as archived, and a part or all of it is here: it was not removed, or not fetched whole.
   */
  async function removeHere(row: SnapshotRow): Promise<void> {
    try {
      await travel.removeSnapshot(row.id);
    } catch (error) {
      if (!isCayError(error, 'failed_precondition')) throw error;
      await snapshots.update(row.id, { here: true });
    }
  }

  /** It is here and whole, so a copy in the store is of an archiving that was not finished. */
  async function removeCopy(id: SnapshotRow['id']): Promise<void> {
    const row = await snapshots.get(id);
    if (!row?.here || row.object === null) return;
    await archives.store?.remove(row.object);
    await snapshots.update(id, { object: null });
  }

  async function recoverOne(row: SnapshotRow, isThere: boolean): Promise<void> {
    // Another server takes it, removes it or moves it at this moment.
    if (await leases.isHeld(row.sandbox)) return;
    if (row.state !== 'kept') await remove(row);
    else if (!row.here && isThere) await removeHere(row);
    else if (row.here && !isThere && !unsure(platformOf(row, backend))) {
      missing.push(row);
      return;
    }
    await removeCopy(row.id);
  }

  /** Looks again: another server may have taken them after the first look, before their rows were read. */
  async function recoverMissing(): Promise<void> {
    if (missing.length === 0) return;
    const now = await look();
    const there = new Set(now.found.map(({ it }) => it.id));
    for (const row of missing)
      if (!there.has(row.id) && !now.unsure(platformOf(row, backend)))
        await loseSnapshot(core, row).catch(onError);
  }

  for (const row of await snapshots.all()) await recoverOne(row, unknown.delete(row.id)).catch(onError);
  await recoverMissing();
  for (const [id, platform] of unknown)
    await platform.ability('snapshots')?.removeSnapshot(id).catch(onError);
  await removeLeftSnapshots(core, misplaced);
  await registry.dropAbandoned();
}

/** Snapshots that went along with a sandbox that was moved, and are still on the platform where they were. */
export async function removeLeftSnapshots(
  { backend, onError, records }: Pick<Core, 'backend' | 'onError' | 'records'>,
  misplaced: readonly Found<Pick<SnapshotRow, 'id'>>[],
): Promise<void> {
  for (const { it, platform } of misplaced) {
    const row = await records.snapshots.get(it.id);
    const sandbox = row && (await records.sandboxes.get(row.sandbox));
    if (!row || sandbox?.operation?.kind === 'move' || isOn(backend, row, platform)) continue;
    await platform
      .ability('snapshots')
      ?.removeSnapshot(it.id)
      .catch((error: unknown) => {
        // A sandbox there was made of it. It is removed with the last of them.
        if (!isCayError(error, 'failed_precondition')) onError(error);
      });
  }
}

/** Records that a snapshot is gone from its backend, and so are the templates that were made of it. */
export async function loseSnapshot(
  { recordEvent, records }: Pick<Core, 'recordEvent' | 'records'>,
  row: SnapshotRow,
): Promise<void> {
  const { id, sandbox, project } = row;
  await records.transaction(async (tx) => {
    // It may have been removed since it was listed.
    if (!(await tx.snapshots.get(id))) return;
    for (const template of await tx.templates.of(id))
      await tx.templates.delete(template.project, template.name);
    // Without this its files would be counted with its descendants.
    await tx.snapshots.update(id, { fileBytes: 0 });
    await tx.snapshots.delete(id);
    await recordEvent(tx, 'snapshot.lost', { id: sandbox, project }, undefined, { snapshot: id });
  });
}
