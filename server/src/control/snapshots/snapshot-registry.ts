/**
 * Snapshots as records and as what the backend and the archive store have of them.
 *
 * A snapshot is recorded before it is taken and before it is removed, so that one that was never told to
 * anybody is found and taken away. Preconditions: `take` is called in line with the other changes of its
 * sandbox.
 */
import {
  CayError,
  isCayError,
  newId,
  type SandboxId,
  type Snapshot,
  type SnapshotId,
  type SnapshotRef,
} from '@cay/sdk/protocol';
import { faultPoint } from '../../lib/fault-point.ts';
import { logThrottle } from '../../lib/log-throttle.ts';
import { snapshotting, type Context } from '../context.ts';
import { imageEstimate } from './image-estimate.ts';
import type { Principal } from '../tenants/principal.ts';
import type { SandboxRow } from '../../records/sandboxes.ts';
import type { SnapshotRow } from '../../records/snapshots.ts';
import { retryOnDiskFull } from '../capacity/retry-on-disk-full.ts';

export interface Taking {
  id?: SnapshotId;
  cause: Snapshot['cause'];
  name?: string;
  labels?: Record<string, string>;
  /** `if possible`: with memory if there is any and the isolation can, else without. */
  memory: boolean | 'if possible';
  quiet: boolean;
  /** Gives it the sandbox's next number. */
  numbered?: boolean;
  /** It is shown to nobody. */
  passing?: boolean;
  /** The sandbox stands on it from now on. */
  stands: boolean;
}

export interface SnapshotRegistry {
  take(row: SandboxRow, taking: Taking, principal: Principal | undefined): Promise<SnapshotRow>;
  /**
   * Removes one. Rejects `failed_precondition` while something needs it, `conflict` while something is being
   * made of it.
   */
  drop(row: SnapshotRow, principal: Principal | undefined, cause: string): Promise<void>;
  /** What a reference means. Rejects `not_found`. */
  resolve(project: string, ref: SnapshotRef, sandbox?: SandboxId): SnapshotRow;
  /**
   * Has the backend answer for it, fetching it from the archive store. It is not removed while the task runs.
   */
  using<T>(
    row: SnapshotRow,
    task: (row: SnapshotRow) => Promise<T>,
    options?: { beyondQuota?: boolean },
  ): Promise<T>;
  /** Removes those of them that nothing needs. Tells nobody if one cannot go. */
  dropUnneeded(rows: SnapshotRow[]): Promise<void>;
  /**
   * Removes what nobody asked to be kept and nobody can use: its sandbox is gone, or of a fork all children.
   * All, or around this sandbox.
   */
  dropLeft(row?: SandboxRow): Promise<void>;
  /** Keeps it from being removed until it is disposed of. */
  pin(id: SnapshotId): Disposable;
  /** Whether a sandbox stands on it, or a template is made of it. */
  needed(id: SnapshotId): boolean;
}

/** How often the snapshots of a project are counted anew because it would be refused one. */
const RECOUNT_EVERY_MS = 10_000;

export function openSnapshotRegistry(context: Context): SnapshotRegistry {
  const {
    activity,
    archives,
    database,
    lifecycle,
    note,
    now,
    onError,
    pressure,
    quota,
    sandboxes,
    snapshots,
    templates,
  } = context;
  const recounts = logThrottle({ everyMs: RECOUNT_EVERY_MS, now: () => context.clock.steady() });
  const pins = new Map<SnapshotId, number>();
  const fetching = new Map<SnapshotId, Promise<SnapshotRow>>();

  async function captured(row: SandboxRow, id: SnapshotId, memory: Taking['memory']) {
    const backend = snapshotting(context);
    const runs = row.state === 'active' || row.pausedAs === 'hibernated';
    if (memory !== 'if possible' || !runs) return backend.snapshot(row.id, id, { memory: memory === true });
    try {
      return await backend.snapshot(row.id, id, { memory: true });
    } catch (error) {
      if (!isCayError(error, 'unsupported')) throw error;
      return backend.snapshot(row.id, id);
    }
  }

  /**
   * Fetches from the archive store once, however many ask. It comes whole, and shares its files with none
   * that is here.
   */
  function fetch(row: SnapshotRow, beyondQuota: boolean): Promise<SnapshotRow> {
    let fetched = fetching.get(row.id);
    if (!fetched) {
      fetched = (async () => {
        const backend = snapshotting(context);
        // What an attempt that was cut short has left would count as done.
        await backend.removeSnapshot(row.id);
        // What is in the store is ours, whichever version put it there.
        using coming = quota.begin(row.project, 'fetched', beyondQuota ? [] : ['snapshotBytes']);
        const admit = (bytes: number) => coming.add(bytes);
        const facts = await backend.importSnapshot(row.id, archiveOf(row), {
          platform: row.spec.platform,
          foreignMemory: true,
          admit,
        });
        await faultPoint('control.fetch.done');
        const { memoryBytes = null, fileBytes = coming.bytes - (memoryBytes ?? 0) } = facts;
        const here = snapshots.update(row.id, { here: true, fileBytes, memoryBytes });
        await forgetObject(here).catch(onError);
        return snapshots.get(row.id) ?? here;
      })().finally(() => fetching.delete(row.id));
      fetching.set(row.id, fetched);
    }
    return fetched;
  }

  function archiveOf(row: SnapshotRow): AsyncIterable<Uint8Array> {
    if (!archives || row.object === null) {
      throw new CayError(
        'unavailable',
        `Snapshot "${row.id}" is in the archive store, which this server does not have`,
      );
    }
    return archives.get(row.object);
  }

  async function forgetObject(row: SnapshotRow): Promise<void> {
    if (row.object === null) return;
    await archives?.remove(row.object);
    snapshots.update(row.id, { object: null });
  }

  /** Before a quota refuses, snapshots are counted anew: what was removed with others may have gone since. */
  async function recounting(project: string, bytes: number, admit: (bytes: number) => void): Promise<void> {
    try {
      admit(bytes);
    } catch (error) {
      if (!isCayError(error, 'resource_exhausted') || error.details['quota'] !== 'snapshotBytes') throw error;
      if (!recounts.happens(project).first) throw error;
      await recount(project);
      admit(bytes);
    }
  }

  async function recount(project: string): Promise<void> {
    const backend = snapshotting(context);
    for (const { id, here, fileBytes } of snapshots.list({ project })) {
      if (!here || !fileBytes) continue;
      const most = await backend.fileBytes?.(id);
      if (most !== undefined && most < fileBytes && snapshots.get(id)?.fileBytes === fileBytes)
        snapshots.update(id, { fileBytes: most });
    }
  }

  const registry: SnapshotRegistry = {
    async take(row, taking, principal) {
      const { id = newId('snap') } = taking;
      const { project } = row;
      const { platform } = row.spec;
      snapshotting(context);
      // What a sandbox that is archived has is counted already, and what is compared is gone at once.
      const counted = taking.cause !== 'archive' && !taking.passing;
      using reserved = quota.begin(project, 'underWay', counted ? ['snapshotBytes'] : []);
      await recounting(project, await imageEstimate(context, row, taking.memory), (bytes) =>
        reserved.add(bytes),
      );
      database.transaction(() => {
        if (counted) {
          quota.requireRoom(project, 'snapshots', 1);
          // What was there before a rollback takes no room, and whoever goes back may be about to make some.
          if (taking.cause !== 'rollback')
            pressure.admit({ memoryBytes: null, diskBytes: null }, { starts: false, platform });
        }
        const turn = taking.numbered ? context.again(row).turn + 1 : null;
        snapshots.insert({
          id,
          project: row.project,
          sandbox: row.id,
          parent: row.base,
          name: taking.name ?? null,
          turn,
          cause: taking.cause,
          labels: taking.labels ?? {},
          memory: false,
          runtime: null,
          spec: row.spec,
          quiet: taking.quiet,
          state: 'taking',
          here: true,
          object: null,
          fileBytes: null,
          memoryBytes: null,
          createdAtMs: now(),
        });
        // A number is given once, also if nothing comes of it.
        if (turn !== null) sandboxes.update(row.id, { turn });
      });
      try {
        await faultPoint('control.snapshot.recorded');
        const facts = await captured(row, id, taking.memory);
        await faultPoint('control.snapshot.taken');
        const { fileBytes = null, memoryBytes = null } = facts;
        reserved[Symbol.dispose]();
        const required = (bytes: number) => quota.requireRoom(project, 'snapshotBytes', bytes);
        if (counted) await recounting(project, (fileBytes ?? 0) + (memoryBytes ?? 0), required);
        const kept = database.transaction(() => {
          if (taking.stands) sandboxes.update(row.id, { base: id });
          const taken = snapshots.update(id, {
            state: taking.passing ? 'passing' : 'kept',
            memory: facts.memory,
            fileBytes,
            memoryBytes,
            runtime: facts.memory ? (facts.runtime ?? row.runtime) : null,
          });
          const { turn, name, cause, memory } = taken;
          const data = {
            snapshot: id,
            cause,
            memory,
            ...(turn !== null && { turn }),
            ...(name !== null && { name }),
          };
          if (!taking.passing) note('snapshot.taken', row, principal, data);
          return taken;
        });
        // Archiving is nobody's use of it.
        if (taking.cause !== 'archive') activity.touch(row.id);
        return kept;
      } catch (error) {
        await discard(id);
        throw error;
      }
    },

    async drop(row, principal, cause) {
      refuse(row);
      snapshots.update(row.id, { state: 'removing' });
      try {
        await faultPoint('control.remove_snapshot.recorded');
        if (row.here) await snapshotting(context).removeSnapshot(row.id);
        await forgetObject(row);
        await faultPoint('control.remove_snapshot.done');
      } catch (error) {
        // What something stands on stays, and what the disk was too full to begin with; anything else is
        // tried again when the server opens the next time.
        const stays =
          isCayError(error, 'failed_precondition') ||
          (isCayError(error, 'resource_exhausted') && (await hasAll(row)));
        if (stays && reinstated(row)) throw error;
        throw halfway(error, row);
      }
      const tell = () =>
        note('snapshot.removed', { id: row.sandbox, project: row.project }, principal, {
          snapshot: row.id,
          cause,
        });
      try {
        database.transaction(() => {
          snapshots.delete(row.id);
          if (row.state === 'kept') tell();
        });
      } catch (error) {
        // It is recorded as being removed, and nobody sees it any more.
        onError(error);
        if (row.state === 'kept') tell();
      }
    },

    resolve(project, ref, sandbox) {
      const row = look(project, String(ref), sandbox);
      if (row?.project === project && row.state === 'kept') return row;
      throw new CayError(
        'not_found',
        `Snapshot "${String(ref).slice(0, 80)}"${sandbox ? ` of sandbox "${sandbox}"` : ''} does not exist`,
        {
          ...(!sandbox &&
            !String(ref).startsWith('snap_') && {
              hint: 'give its id, or its sandbox with its name or number',
            }),
        },
      );
    },

    async using(row, task, { beyondQuota = false } = {}) {
      using _ = registry.pin(row.id);
      return await task(row.here ? row : await fetch(row, beyondQuota));
    },

    async dropUnneeded(rows) {
      for (const { id } of rows) {
        const row = snapshots.get(id);
        if (row?.state !== 'kept') continue;
        if (registry.needed(row.id) || pins.has(row.id)) continue;
        try {
          await registry.drop(row, undefined, 'unneeded');
        } catch (error) {
          if (!isCayError(error, 'failed_precondition') && !isCayError(error, 'conflict')) onError(error);
        }
      }
    },

    async dropLeft(row) {
      const gone = (id: SandboxId) => sandboxes.get(id) === undefined;
      const own = snapshots.list(row ? { project: row.project, sandbox: row.id } : {}).filter(unasked);
      // Those above it are looked at before what joins them to it goes.
      const forked = row ? [...own, ...above(row.base)] : own;
      // What a sandbox was when it was archived is of no use once it has gone on.
      await registry.dropUnneeded(
        own.filter(({ sandbox, cause }) => cause === 'archive' || (cause !== 'fork' && gone(sandbox))),
      );
      await registry.dropUnneeded(
        forked.filter(
          ({ id, sandbox, cause }) =>
            cause === 'fork' &&
            snapshots.children(id).every((child) => child.sandbox === sandbox || gone(child.sandbox)),
        ),
      );
    },

    pin(id) {
      pins.set(id, (pins.get(id) ?? 0) + 1);
      return {
        [Symbol.dispose]() {
          const left = pins.get(id)! - 1;
          if (left === 0) pins.delete(id);
          else pins.set(id, left);
        },
      };
    },

    needed: (id) => sandboxes.standingOn(id).length > 0 || templates.of(id).length > 0,
  };

  const unasked = ({ name, cause }: SnapshotRow) =>
    name === null && cause !== 'request' && cause !== 'import';

  function above(base: SnapshotId | null): SnapshotRow[] {
    const rows: SnapshotRow[] = [];
    for (let id = base; id !== null;) {
      const row = snapshots.get(id);
      if (!row) break;
      if (unasked(row)) rows.push(row);
      id = row.parent;
    }
    return rows;
  }

  function look(project: string, ref: string, sandbox: SandboxId | undefined): SnapshotRow | undefined {
    if (ref.startsWith('snap_')) return snapshots.get(ref);
    if (sandbox === undefined) return undefined;
    return /^[0-9]{1,15}$/.test(ref)
      ? snapshots.byTurn(project, sandbox, Number(ref))
      : snapshots.byName(project, sandbox, ref);
  }

  function refuse(row: SnapshotRow): void {
    const [template] = templates.of(row.id);
    if (template) {
      throw new CayError(
        'failed_precondition',
        `Cannot remove snapshot "${row.id}": template "${template.name}" is made of it`,
        {
          details: { template: template.name },
          hint: 'remove the template first',
        },
      );
    }
    const standing = sandboxes.standingOn(row.id);
    // An archived sandbox is nothing but this snapshot.
    const archived = standing.filter(({ pausedAs }) => pausedAs === 'archived').map(({ id }) => id);
    if (archived.length > 0) {
      throw new CayError(
        'failed_precondition',
        `Cannot remove snapshot "${row.id}": sandbox "${archived[0]}" is archived in it`,
        {
          details: { sandboxes: archived },
          hint: 'resume that sandbox first',
        },
      );
    }
    if (
      pins.has(row.id) ||
      standing.some(({ id, state }) => state === 'creating' || lifecycle.making(id) !== undefined)
    ) {
      throw new CayError('conflict', `Cannot remove snapshot "${row.id}": something is being made of it`);
    }
  }

  async function hasAll({ id, here, object }: SnapshotRow): Promise<boolean> {
    return (
      object === null &&
      here &&
      (await snapshotting(context).snapshots()).some((snapshot) => snapshot.id === id)
    );
  }

  /** Shows it again. On a full disk that is done as soon as there is room. */
  function reinstated({ id, state }: Pick<SnapshotRow, 'id' | 'state'>): boolean {
    try {
      if (snapshots.get(id)?.state === 'removing') snapshots.update(id, { state });
      return true;
    } catch (error) {
      onError(error);
      retryOnDiskFull(() => reinstated({ id, state }));
      return false;
    }
  }

  /** A full disk says that nothing was done, which is not known here. */
  function halfway(error: unknown, { id }: SnapshotRow): unknown {
    if (!isCayError(error, 'resource_exhausted')) return error;
    return new CayError('unavailable', `Snapshot "${id}" has been removed in part: the disk is full`, {
      cause: error,
    });
  }

  /** Undoes a taking. Should that fail, it is done when the server opens the next time. */
  async function discard(id: SnapshotId): Promise<void> {
    try {
      await snapshotting(context).removeSnapshot(id);
      snapshots.delete(id);
    } catch (error) {
      onError(error);
    }
  }

  return registry;
}
