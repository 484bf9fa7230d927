/**
 * Moves sandboxes into the archive store and back.
 *
 * Everything is copied out first. Then one transaction records that the sandbox is in the store and not on
 * the machine. Then what is on the machine is removed. On the way back it is the same in reverse. So a
 * sandbox is whole on one side at any moment, and the records say on which: what is found on the other side
 * is left over.
 *
 * Call these from the sandbox's queue, and `archive` with its gate closed.
 */
import { CayError, isCayError, newId } from '@cay/sdk/protocol';
import { scopeOf } from '../sandboxes/scope-of.ts';
import { faultPoint } from '../../lib/fault-point.ts';
import type { SandboxRow } from '../../records/tables/sandbox-row.ts';
import type { SnapshotRow } from '../../records/tables/snapshot-row.ts';
import type { Store } from '../../storage/store.ts';
import type { Core } from '../core.ts';
import type { OnRecord } from '../sandboxes/record-state.ts';
import type { SandboxStarter } from '../sandboxes/start-sandbox.ts';
import { withMemoryHint } from '../snapshots/memory-errors.ts';
import { requireSnapshots } from '../snapshots/require-snapshots.ts';
import type { SnapshotRegistry } from '../snapshots/snapshot-registry.ts';
import type { Flight } from '../tenants/quota-ledger.ts';
import { movableSnapshots } from '../snapshots/movable-snapshots.ts';

export interface Archiving {
  /**
   * Rejects `unsupported` without an archive store. When it rejects, the sandbox is on the machine as before.
   */
  archive(row: SandboxRow, options?: { onRecord?: OnRecord | undefined }): Promise<SandboxRow>;
  /**
   * Brings it back: running, or stopped with `filesOnly`. When it rejects, the sandbox is in the store as
   * before.
   */
  restore(row: SandboxRow, options?: { filesOnly?: boolean; onRecord?: OnRecord }): Promise<SandboxRow>;
}

export function openArchiving({
  archives,
  backend,
  lookup,
  onError,
  quota,
  records,
  registry,
  starter,
}: Pick<Core, 'archives' | 'backend' | 'lookup' | 'onError' | 'quota' | 'records'> & {
  registry: SnapshotRegistry;
  starter: SandboxStarter;
}): Archiving {
  const { sandboxes, snapshots } = records;

  function requireStore(): Store {
    if (archives.store) return archives.store;
    throw new CayError('unsupported', 'This server has no archive store', {
      hint: 'configure one, or hibernate or stop the sandbox',
    });
  }

  async function dropEarlierArchivings(row: SandboxRow): Promise<void> {
    const own = await snapshots.list({ sandbox: row.id, project: row.project });
    await registry.dropUnneeded(own.filter(({ cause, name }) => cause === 'archive' && name === null));
  }

  /** Resolves the number of bytes that each snapshot has in the store. It is whole there. */
  async function copyOut(
    store: Store,
    row: SandboxRow,
    moving: SnapshotRow[],
    flight: Flight,
  ): Promise<Map<string, number>> {
    const bytes = new Map<string, number>();
    try {
      for (const { id } of moving) {
        const object = `${row.id}.${id}`;
        const before = flight.bytes;
        await snapshots.update(id, { object });
        await faultPoint('control.archive.putting');
        const archive = requireSnapshots(backend).exportSnapshot(id, { seal: archives.seal });
        await store.put(object, counted(archive, flight));
        bytes.set(id, flight.bytes - before);
      }
      await faultPoint('control.archive.stored');
      return bytes;
    } catch (error) {
      await removeObjects(moving).catch(onError);
      throw error;
    }
  }

  async function removeObjects(rows: SnapshotRow[]): Promise<void> {
    for (const { id } of rows) {
      const row = await snapshots.get(id);
      if (!row?.object) continue;
      await archives.store?.remove(row.object);
      await snapshots.update(id, { object: null });
    }
  }

  /**
   * Resolves with the snapshots that were moved: those that something needs here since they were copied stay.
   */
  function recordArchived(
    row: SandboxRow,
    base: SnapshotRow['id'],
    copied: SnapshotRow[],
    bytes: Map<string, number>,
    onRecord: OnRecord | undefined,
  ): Promise<{ archived: SandboxRow; moved: SnapshotRow[] }> {
    return records.transaction(async (tx) => {
      const still = new Set((await movableSnapshots(tx, row)).map(({ id }) => id));
      const moved = copied.filter(({ id }) => still.has(id));
      // From the oldest on: files that a snapshot shares are counted with those that were made of it.
      for (const { id } of moved.toReversed()) await tx.snapshots.archived(id, bytes.get(id)!);
      const archived = await tx.sandboxes.update(row.id, { ...ARCHIVED, base });
      await onRecord?.(archived, tx);
      return { archived, moved };
    });
  }

  /** Removes what is on the machine of an archived sandbox. If this fails, the next server does it. */
  async function removeHere(row: SandboxRow, moved: SnapshotRow[]): Promise<void> {
    await faultPoint('control.archive.recorded');
    await backend.remove(row.id);
    await faultPoint('control.archive.removed');
    for (const { id, fileBytes, memoryBytes } of moved) {
      try {
        await requireSnapshots(backend).removeSnapshot(id);
      } catch (error) {
        if (!isCayError(error, 'failed_precondition')) throw error;
        // A sandbox was made of it meanwhile: it stays here.
        await removeObjects([await snapshots.update(id, { here: true, fileBytes, memoryBytes })]);
      }
    }
  }

  return {
    async archive(row, { onRecord } = {}) {
      const store = requireStore();
      const id = newId('snap');
      const pins = [registry.pin(id)];
      try {
        const memory = row.pausedAs === 'hibernated';
        await registry.take(
          row,
          { id, cause: 'archive', memory, quiet: true, becomesBase: false },
          undefined,
        );
        await dropEarlierArchivings(row);
        const moving = await movableSnapshots(records, row);
        pins.push(...moving.map((snapshot) => registry.pin(snapshot.id)));
        using flight = quota.begin(row.project, 'archiving', ['snapshotBytes']);
        const bytes = await copyOut(store, row, moving, flight);
        const { archived, moved } = await recordArchived(row, id, moving, bytes, onRecord);
        const stay = moving.filter((snapshot) => !moved.includes(snapshot));
        await removeObjects(stay).catch(onError);
        await removeHere(row, moved).catch(onError);
        return archived;
      } catch (error) {
        for (const pin of pins.splice(0)) pin[Symbol.dispose]();
        const taken = await snapshots.get(id);
        if (taken) await registry.dropUnneeded([taken]);
        throw error;
      } finally {
        for (const pin of pins) pin[Symbol.dispose]();
      }
    },

    async restore(row, { filesOnly = false, onRecord } = {}) {
      const snapshot = row.base === null ? undefined : await snapshots.get(row.base);
      if (!snapshot)
        throw new CayError('internal', `Sandbox "${row.id}" is archived, and its archive is not recorded`);
      const travel = requireSnapshots(backend);
      const memory = snapshot.memory && !filesOnly;
      const restoreFetched = async () => {
        await faultPoint('control.restore.fetched');
        await travel.clone(row.id, row.spec, snapshot.id, { memory, ...scopeOf(row) });
        await faultPoint('control.restore.cloned');
        if (filesOnly) return sandboxes.update(row.id, { state: 'stopped', pausedAs: null });
        const origin = { snapshot: snapshot.id, memory, start: true };
        return await starter.start({ ...row, origin }, onRecord);
      };
      try {
        // A full quota must not keep a project from its own files.
        return await registry.using(snapshot, restoreFetched, { beyondQuota: true });
      } catch (error) {
        if ((await lookup.reload(row)).state === 'paused') await backend.remove(row.id).catch(onError);
        throw withMemoryHint(error);
      }
    },
  };
}

/** The store may be on the same disk as everything else. */
async function* counted(
  archive: AsyncIterable<Uint8Array>,
  flight: Flight,
): AsyncGenerator<Uint8Array, void, undefined> {
  for await (const chunk of archive) {
    await flight.add(chunk.length);
    yield chunk;
  }
}

const ARCHIVED = {
  state: 'paused',
  pausedAs: 'archived',
  runtime: null,
  expiresAtMs: null,
  reason: null,
  message: null,
} as const;
