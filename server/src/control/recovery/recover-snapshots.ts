/**
 * Brings the records of snapshots together with what the backend and the archive store have, when the server
 * opens.
 */
import { isCayError } from '@cay/sdk/protocol';
import type { Context } from '../context.ts';
import { platformOf, survey } from '../placement/placement.ts';
import type { SnapshotRegistry } from '../snapshots/snapshot-registry.ts';
import type { SnapshotRow } from '../../records/snapshots.ts';

export async function recoverSnapshots(context: Context, registry: SnapshotRegistry): Promise<void> {
  const { archives, backend, onError, snapshots } = context;
  const travel = backend.ability('snapshots');
  if (!travel) return;
  const { found: all, unsure } = await survey(
    backend,
    async (platform) => (await platform.ability('snapshots')?.snapshots()) ?? [],
  );
  const found = new Map(all.map(({ it, platform }) => [it.id, platform]));

  /** Takes away what nobody was told of, or was told that it goes. */
  async function finish(row: SnapshotRow): Promise<void> {
    try {
      await travel!.removeSnapshot(row.id);
    } catch (error) {
      // It would have been refused then as it is now.
      if (row.state !== 'removing' || !isCayError(error, 'failed_precondition')) throw error;
      snapshots.update(row.id, { state: 'kept' });
      return;
    }
    if (row.object !== null) await archives?.remove(row.object);
    snapshots.delete(row.id);
  }

  for (const row of snapshots.all()) {
    const there = found.delete(row.id);
    try {
      if (row.state !== 'kept') {
        await finish(row);
      } else if (!row.here && there) {
        // What was copied out and should have gone, or was not yet brought back whole.
        await travel.removeSnapshot(row.id).catch((error: unknown) => {
          if (!isCayError(error, 'failed_precondition')) throw error;
          snapshots.update(row.id, { here: true });
        });
      } else if (row.here && !there && !unsure(platformOf(row, backend))) {
        loseSnapshot(context, row);
      }
      const now = snapshots.get(row.id);
      if (now?.here && now.object !== null) {
        // Here and whole: a copy in the store is of an archiving that was not finished.
        await archives?.remove(now.object);
        snapshots.update(row.id, { object: null });
      }
    } catch (error) {
      onError(error);
    }
  }
  for (const [id, platform] of found) await platform.ability('snapshots')?.removeSnapshot(id).catch(onError);
  await registry.dropLeft();
}

/** It is gone from its backend: so is what was made of it, and whoever reads events hears of it. */
export function loseSnapshot(
  { note, snapshots, templates }: Pick<Context, 'note' | 'snapshots' | 'templates'>,
  row: SnapshotRow,
): void {
  for (const { project, name } of templates.of(row.id)) templates.delete(project, name);
  // Nobody has its files any more.
  snapshots.update(row.id, { fileBytes: 0 });
  snapshots.delete(row.id);
  note('snapshot.lost', { id: row.sandbox, project: row.project }, undefined, { snapshot: row.id });
}
