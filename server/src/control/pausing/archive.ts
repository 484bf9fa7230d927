/**
 * Puts sandboxes into the archive store and back.
 *
 * First everything is copied out; then one write of the records says that the sandbox is there and not here;
 * then what is here is taken away. On the way back it is the same the other way round. So a sandbox is whole
 * on one side at any moment, and which side that is the records say: what is found on the other one is a
 * leftover.
 *
 * Preconditions: called in line with the other changes of the sandbox, with its gate closed on the way out.
 */
import { CayError, isCayError, newId } from '@cay/sdk/protocol';
import type { Store } from '../../storage/store.ts';
import { faultPoint } from '../../lib/fault-point.ts';
import { snapshotting, type Context } from '../context.ts';
import type { SnapshotRegistry } from '../snapshots/snapshot-registry.ts';
import type { Flight } from '../tenants/quota-ledger.ts';
import type { Tell } from '../sandboxes/lifecycle.ts';
import type { SandboxRow } from '../../records/sandboxes.ts';
import type { SnapshotRow } from '../../records/snapshots.ts';

export interface Archiving {
  /** Rejects `unsupported` without an archive store. When it rejects the sandbox is here and as it was. */
  archive(row: SandboxRow): Promise<SandboxRow>;
  /** Brings it back: running, or with `filesOnly` stopped. When it rejects it is in the store as before. */
  restore(row: SandboxRow, options?: { filesOnly?: boolean; tell?: Tell }): Promise<SandboxRow>;
}

export function openArchiving(context: Context, registry: SnapshotRegistry): Archiving {
  const { archives, backend, database, lifecycle, onError, quota, sandboxes, seal, snapshots } = context;

  function store(): Store {
    if (archives) return archives;
    throw new CayError('unsupported', 'This server has no archive store', {
      hint: 'configure one, or hibernate or stop the sandbox',
    });
  }

  /** Its own snapshots that are only its own: what others stand on, or are made of, stays here. */
  function movable(row: SandboxRow): SnapshotRow[] {
    return snapshots.list({ sandbox: row.id, project: row.project }).filter(({ id, here }) => {
      if (!here || context.templates.of(id).length > 0) return false;
      return sandboxes.standingOn(id).every((other) => other.id === row.id);
    });
  }

  /** Leaves nothing of an attempt in the store. */
  async function takeBack(rows: SnapshotRow[]): Promise<void> {
    for (const { id } of rows) {
      const row = snapshots.get(id);
      if (!row?.object) continue;
      await archives?.remove(row.object);
      snapshots.update(id, { object: null });
    }
  }

  /** The store may be on the disk that everything else is on. */
  async function* admitted(
    archive: AsyncIterable<Uint8Array>,
    flight: Flight,
  ): AsyncGenerator<Uint8Array, void, undefined> {
    for await (const chunk of archive) {
      flight.add(chunk.length);
      yield chunk;
    }
  }

  /**
   * Each is whole in the store, whatever it shares with others here. Resolves how many bytes each has there.
   */
  async function copyOut(
    into: Store,
    row: SandboxRow,
    moving: SnapshotRow[],
    flight: Flight,
  ): Promise<Map<string, number>> {
    const bytes = new Map<string, number>();
    try {
      for (const { id } of moving) {
        const object = `${row.id}.${id}`;
        const before = flight.bytes;
        snapshots.update(id, { object });
        await faultPoint('control.archive.putting');
        await into.put(object, admitted(snapshotting(context).exportSnapshot(id, { seal }), flight));
        bytes.set(id, flight.bytes - before);
      }
      await faultPoint('control.archive.stored');
      return bytes;
    } catch (error) {
      await takeBack(moving).catch(onError);
      throw error;
    }
  }

  /** It is in the store; what is left here goes now, or when the server opens the next time. */
  async function left(row: SandboxRow, moved: SnapshotRow[]): Promise<void> {
    await faultPoint('control.archive.recorded');
    await clear(row, moved);
  }

  /** Takes away what is here of a sandbox that is in the store. */
  async function clear(row: SandboxRow, moved: SnapshotRow[]): Promise<void> {
    await backend.remove(row.id);
    await faultPoint('control.archive.removed');
    for (const { id, fileBytes, memoryBytes } of moved) {
      try {
        await snapshotting(context).removeSnapshot(id);
      } catch (error) {
        if (!isCayError(error, 'failed_precondition')) throw error;
        // Something came to stand on it: it stays here after all.
        snapshots.update(id, { here: true, fileBytes, memoryBytes });
        await takeBack([snapshots.get(id)!]);
      }
    }
  }

  return {
    async archive(row) {
      const into = store();
      const id = newId('snap');
      const pins = [registry.pin(id)];
      try {
        const memory = row.pausedAs === 'hibernated';
        await registry.take(row, { id, cause: 'archive', memory, quiet: true, stands: false }, undefined);
        // Those of earlier archivings, if it has gone on since.
        await registry.dropUnneeded(
          snapshots
            .list({ sandbox: row.id, project: row.project })
            .filter(({ cause, name }) => cause === 'archive' && name === null),
        );
        const moving = movable(row);
        pins.push(...moving.map((snapshot) => registry.pin(snapshot.id)));
        using flight = quota.begin(row.project, 'archiving', ['snapshotBytes']);
        const bytes = await copyOut(into, row, moving, flight);
        const archived = database.transaction(() => {
          // From the oldest on: what one has goes to those that were made of it, and on from there.
          for (const snapshot of moving.toReversed())
            snapshots.archived(snapshot.id, bytes.get(snapshot.id)!);
          return sandboxes.update(row.id, { ...ARCHIVED, base: id });
        });
        await left(row, moving).catch(onError);
        return archived;
      } catch (error) {
        for (const pin of pins.splice(0)) pin[Symbol.dispose]();
        const taken = snapshots.get(id);
        if (taken) await registry.dropUnneeded([taken]);
        throw error;
      } finally {
        for (const pin of pins) pin[Symbol.dispose]();
      }
    },

    async restore(row, { filesOnly = false, tell } = {}) {
      const snapshot = row.base === null ? undefined : snapshots.get(row.base);
      if (!snapshot)
        throw new CayError('internal', `Sandbox "${row.id}" is archived, and its archive is not recorded`);
      const travel = snapshotting(context);
      const memory = snapshot.memory && !filesOnly;
      try {
        const fetched = async () => {
          await faultPoint('control.restore.fetched');
          await travel.clone(row.id, row.spec, snapshot.id, { memory, project: row.project });
          await faultPoint('control.restore.cloned');
          if (filesOnly) return sandboxes.update(row.id, { state: 'stopped', pausedAs: null });
          return await lifecycle.activate(
            { ...row, origin: { snapshot: snapshot.id, memory, start: true } },
            tell,
          );
        };
        // A quota keeps nobody from what is in a sandbox.
        return await registry.using(snapshot, fetched, { beyondQuota: true });
      } catch (error) {
        if (context.again(row).state === 'paused') await backend.remove(row.id).catch(onError);
        throw withHint(error);
      }
    },
  };
}

const ARCHIVED = {
  state: 'paused',
  pausedAs: 'archived',
  runtime: null,
  expiresAtMs: null,
  reason: null,
  message: null,
} as const;

/** Memory that cannot go on here does not make the files unreachable. */
export function withHint(error: unknown): unknown {
  if (!isCayError(error, 'failed_precondition') || error.details['reason'] !== 'checkpoint_mismatch')
    return error;
  return new CayError(error.code, error.message, {
    details: error.details,
    cause: error,
    hint: error.hint ?? 'its files are whole: stop it and start it again, or ask for it without memory',
  });
}

export function invalidArchive(cause: unknown): CayError {
  return new CayError('invalid_argument', 'Cannot take the archive in: it does not say what it is of', {
    cause,
  });
}
