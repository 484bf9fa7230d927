import { CayError, type SnapshotId } from '@cay/sdk/protocol';
import { faultPoint } from '../../lib/fault-point.ts';
import type { SnapshotRow } from '../../records/tables/snapshot-row.ts';
import type { Core } from '../core.ts';
import { requireSnapshots } from './require-snapshots.ts';

export interface SnapshotFetcher {
  /**
   * Copies a snapshot from the archive store to the backend, once however many callers ask. With
   * `beyondQuota` the project's quota does not apply.
   */
  fetch(row: SnapshotRow, options: { beyondQuota: boolean }): Promise<SnapshotRow>;
  /** Removes the copy in the archive store. */
  removeObject(row: SnapshotRow): Promise<void>;
}

export function openFetcher({
  archives,
  backend,
  onError,
  quota,
  records: { snapshots },
}: Pick<Core, 'archives' | 'backend' | 'onError' | 'quota' | 'records'>): SnapshotFetcher {
  const underWay = new Map<SnapshotId, Promise<SnapshotRow>>();

  function read({ id, object }: SnapshotRow): AsyncIterable<Uint8Array> {
    if (archives.store && object !== null) return archives.store.get(object);
    throw new CayError(
      'unavailable',
      `Snapshot "${id}" is in the archive store, which this server does not have`,
    );
  }

  async function fetchNow(row: SnapshotRow, beyondQuota: boolean): Promise<SnapshotRow> {
    const travel = requireSnapshots(backend);
    // An attempt that was cut short may have left a part, which the import would take for the whole.
    await travel.removeSnapshot(row.id);
    using coming = quota.begin(row.project, 'fetched', beyondQuota ? [] : ['snapshotBytes']);
    const facts = await travel.importSnapshot(row.id, read(row), {
      platform: row.spec.platform,
      project: row.project,
      // Everything in the store was written by this installation.
      foreignMemory: true,
      admit: (bytes) => coming.add(bytes),
    });
    await faultPoint('control.fetch.done');
    // It was imported whole and shares no files with another snapshot.
    const { memoryBytes = null, fileBytes = coming.bytes - (memoryBytes ?? 0) } = facts;
    const here = await snapshots.update(row.id, { here: true, fileBytes, memoryBytes });
    await fetcher.removeObject(here).catch(onError);
    return (await snapshots.get(row.id)) ?? here;
  }

  const fetcher: SnapshotFetcher = {
    fetch(row, { beyondQuota }) {
      let fetched = underWay.get(row.id);
      if (!fetched) {
        fetched = fetchNow(row, beyondQuota).finally(() => underWay.delete(row.id));
        underWay.set(row.id, fetched);
      }
      return fetched;
    },
    async removeObject(row) {
      if (row.object === null) return;
      await archives.store?.remove(row.object);
      await snapshots.update(row.id, { object: null });
    },
  };
  return fetcher;
}
