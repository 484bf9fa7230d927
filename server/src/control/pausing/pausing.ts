/**
 * The ladder that a sandbox goes down when it is not used, and how it wakes.
 *
 * A pause closes the sandbox's gate first: who comes then waits until it is decided, and wakes it. What is
 * inside is waited for as long as the caller wishes, and then paused as it is.
 *
 * Whether a sandbox is frozen, suspended or hibernated its backend can tell, so nothing has to be noted
 * before; an archive has its own way.
 */
import {
  CayError,
  PAUSES,
  PauseSandboxSchema,
  isCayError,
  type Pause,
  type SandboxId,
} from '@cay/sdk/protocol';
import { faultPoint } from '../../lib/fault-point.ts';
import { withHint, type Archiving } from './archive.ts';
import type { Context } from '../context.ts';
import { imageEstimate } from '../snapshots/image-estimate.ts';
import type { PauseVerbs } from '../control.ts';
import type { Tell } from '../sandboxes/lifecycle.ts';
import type { Principal } from '../tenants/principal.ts';
import type { SandboxRow } from '../../records/sandboxes.ts';
import { notRunning } from '../sandboxes/guest-access.ts';

export interface Pausing extends PauseVerbs {
  /** Wakes it, once for all who ask. */
  wake(id: SandboxId, principal?: Principal): Promise<SandboxRow>;
  /**
   * In line: the sandbox here, out of the archive; out of the freezer or any other pause if asked for. What
   * is stopped stays so.
   */
  present(row: SandboxRow, options?: { thawed?: boolean; running?: boolean }): Promise<SandboxRow>;
  /** In line: the sandbox with its files alone, stopped. What was in memory is gone. */
  halted(row: SandboxRow): Promise<SandboxRow>;
  /**
   * In line, with the gate closed: the first of these rungs that is possible. Rejects `unsupported` if none
   * is. One that is there or further down already is done. Its time stands still meanwhile, unless
   * `keepsTime`.
   */
  descend(
    row: SandboxRow,
    rungs: readonly Pause[],
    why: { principal?: Principal; cause: string; keepsTime?: boolean },
  ): Promise<SandboxRow>;
  /** In line: what a timeout asks for. Resolves whether there is a rung that it can stand on. */
  byTimeout(row: SandboxRow): Promise<boolean>;
}

/** How long calls that were let in before have to reach the guest and return. */
const CALLS_MS = 2_000;

/** What is tried where nobody says how: processes are kept if they can be. */
const BY_ITSELF: Pause[] = ['hibernated', 'frozen', 'suspended'];

interface Putting {
  keepsTime?: boolean | undefined;
  /** Makes room on the machine, which no quota keeps from happening. */
  forRoom?: boolean;
  /** What a quota refuses is not tried in another way. */
  strict?: boolean;
  tell?: Tell;
}

const depth = (pause: Pause | null) => (pause === null ? -1 : PAUSES.indexOf(pause));

export function openPausing(context: Context, archiving: Archiving): Pausing {
  const {
    activity,
    backend,
    database,
    operations,
    find,
    lifecycle,
    note,
    now,
    onError,
    pressure,
    quota,
    sandboxes,
    show,
  } = context;
  const waking = new Map<SandboxId, Promise<SandboxRow>>();

  /**
   * Records the pause. One that cannot be recorded is undone, or callers would wait for a sandbox that does
   * not know to wake.
   */
  async function paused(
    row: SandboxRow,
    as: Exclude<Pause, 'archived'>,
    { keepsTime, tell }: Putting,
    undo: () => Promise<unknown>,
    imageBytes?: number,
  ): Promise<SandboxRow> {
    try {
      await faultPoint('control.pause.done');
      return database.transaction(() => {
        const changed = sandboxes.update(row.id, {
          state: 'paused',
          pausedAs: as,
          imageBytes,
          ...(!keepsTime && { expiresAtMs: null }),
        });
        tell?.(changed);
        return changed;
      });
    } catch (error) {
      if (row.state === 'active') await undo().catch(onError);
      throw error;
    }
  }

  async function freeze(row: SandboxRow, putting: Putting): Promise<SandboxRow> {
    const freezing = backend.ability('freeze');
    if (!freezing) throw cannot(row, 'frozen');
    await freezing.freeze(row.id);
    return paused(row, 'frozen', putting, () => freezing.thaw(row.id));
  }

  async function suspend(row: SandboxRow, putting: Putting): Promise<SandboxRow> {
    const suspending = backend.ability('suspend');
    if (!suspending) throw cannot(row, 'suspended');
    if (row.state === 'active') await context.drain(row.id).catch(onError);
    await suspending.suspend(row.id);
    return paused(row, 'suspended', putting, () =>
      backend.ensure(row.id, row.spec, { project: row.project }),
    );
  }

  async function hibernate(row: SandboxRow, putting: Putting): Promise<SandboxRow> {
    const hibernating = backend.ability('memorySnapshots');
    if (!hibernating) throw cannot(row, 'hibernated');
    using reserved = quota.begin(row.project, 'underWay', putting.forRoom ? [] : ['snapshotBytes']);
    const estimate = await imageEstimate(context, row, true);
    reserved.add(estimate);
    // The guest keeps it on disk as well, and whoever reads meanwhile need not wake it.
    if (row.state === 'active') await context.drain(row.id).catch(onError);
    const { imageBytes = estimate } = await hibernating.hibernate(row.id);
    return paused(
      row,
      'hibernated',
      putting,
      () => backend.ensure(row.id, row.spec, { project: row.project }),
      imageBytes,
    );
  }

  /**
   * What still runs while its files are copied would be lost, so it stands still: with its memory where that
   * can be kept.
   */
  async function archive(row: SandboxRow, { tell }: Putting): Promise<SandboxRow> {
    if (!context.archives) throw cannot(row, 'archived');
    if (row.state === 'active') await context.drain(row.id).catch(onError);
    const rests = row.pausedAs === 'hibernated' || row.pausedAs === 'suspended';
    const still = rests
      ? row
      : await first(row, row.pausedAs === null ? ['hibernated', 'frozen'] : ['hibernated'], { strict: true });
    try {
      const archived = await archiving.archive(still);
      tell?.(archived);
      return archived;
    } catch (error) {
      if (row.state === 'active' && still.state === 'paused') await wakeNow(still).catch(onError);
      throw error;
    }
  }

  const put: Record<Pause, (row: SandboxRow, putting: Putting) => Promise<SandboxRow>> = {
    frozen: freeze,
    suspended: suspend,
    hibernated: hibernate,
    archived: archive,
  };

  /**
   * The first that is possible; the row as it is if none is. One that a quota refuses is told if there is no
   * other.
   */
  async function first(row: SandboxRow, rungs: readonly Pause[], putting: Putting = {}): Promise<SandboxRow> {
    let refused: unknown;
    for (const rung of rungs) {
      try {
        return await put[rung](row, putting);
      } catch (error) {
        const quota = isCayError(error, 'resource_exhausted') && error.details['quota'] !== undefined;
        if ((!quota || putting.strict) && !isCayError(error, 'unsupported')) throw error;
        if (quota) refused ??= error;
      }
    }
    if (refused !== undefined) throw refused;
    return row;
  }

  async function wakeNow(row: SandboxRow, principal?: Principal): Promise<SandboxRow> {
    const { pausedAs } = row;
    if (row.state !== 'paused' || pausedAs === null) return row;
    // Its disk and its number are counted already, and a frozen one's memory and processes.
    const { cpus, memoryBytes, pids } = row.spec.limits;
    const frozen = pausedAs === 'frozen';
    const limits = { cpus, memoryBytes: frozen ? 0 : memoryBytes, diskBytes: 0, pids: frozen ? 0 : pids };
    quota.require(row.project, { sandboxes: 0, limits });
    const { platform } = row.spec;
    const diskBytes = pausedAs === 'archived' ? row.spec.limits.diskBytes : null;
    if (!frozen) pressure.admit({ memoryBytes, diskBytes }, { platform });
    const tell: Tell = (active) => note('sandbox.resumed', active, principal, { from: pausedAs });
    const active = await quota.reserving(row, limits, async () => {
      await faultPoint('control.wake.begun');
      if (pausedAs === 'archived') return archiving.restore(row, { tell });
      const observed = await backend.observe(row.id);
      const freezing = backend.ability('freeze');
      if (observed.frozen && freezing) {
        await freezing.thaw(row.id);
        await faultPoint('control.wake.done');
        return lifecycle.standing(row, { ...observed, frozen: false }, tell);
      }
      // Whatever it has become, it is not made anew without what it had.
      const goesOn =
        observed.phase === 'hibernated' || observed.phase === 'ready' || observed.suspended === true;
      if (!goesOn) throw notRunning(lifecycle.standing(row, observed));
      await faultPoint('control.wake.done');
      return lifecycle.activate(row, tell).catch((error: unknown) => {
        throw withHint(error);
      });
    });
    activity.touch(row.id);
    return active;
  }

  const pausing: Pausing = {
    wake(id, principal) {
      let woken = waking.get(id);
      if (!woken) {
        woken = operations
          .run(id, () => wakeNow(context.again({ id }), principal))
          .finally(() => waking.delete(id));
        waking.set(id, woken);
      }
      return woken;
    },

    async present(row, { thawed = false, running = false } = {}) {
      if (row.state === 'creating' || row.state === 'destroying') throw notRunning(row);
      return running || row.pausedAs === 'archived' || (thawed && row.pausedAs === 'frozen')
        ? wakeNow(row)
        : row;
    },

    async halted(row) {
      if (row.pausedAs === 'archived') return archiving.restore(row, { filesOnly: true });
      if (row.pausedAs === 'frozen') await backend.ability('freeze')?.thaw(row.id);
      return row;
    },

    async descend(row, rungs, { principal, cause, keepsTime }) {
      if (row.state !== 'active' && row.state !== 'paused') throw notRunning(row);
      const further = rungs.filter((rung) => depth(rung) > depth(row.pausedAs));
      if (further.length < rungs.length && further.length === 0) return row;
      const tell: Tell = (changed) =>
        note('sandbox.paused', changed, principal, { as: changed.pausedAs, cause });
      const paused = await first(row, further, { keepsTime, tell, forRoom: cause === 'pressure' });
      if (paused.pausedAs === row.pausedAs) {
        // A rung that cannot be reached is no failure for one that is paused as well as can be.
        if (row.state === 'paused' && further.length < rungs.length) return row;
        throw cannot(row, rungs[0]!);
      }
      return paused;
    },

    byTimeout: (row) =>
      activity.closed(row.id, async () => {
        await activity.without(row.id, ['call'], CALLS_MS);
        const rungs: Pause[] = row.onTimeout === 'archive' ? ['archived', ...BY_ITSELF] : BY_ITSELF;
        try {
          const paused = await pausing.descend(row, rungs, { cause: 'timeout' });
          // One that rests already has had its time.
          if (paused.expiresAtMs !== null) sandboxes.update(row.id, { expiresAtMs: null });
          return true;
        } catch (error) {
          if (!isCayError(error, 'unsupported')) throw error;
          return false;
        }
      }),

    async pause(principal, ref, request) {
      const { as, waitMs } = PauseSandboxSchema.parse(request);
      const { id } = find(principal, ref);
      return operations.declare(id, 'pause', () =>
        activity.closed(id, async () => {
          await activity.without(id, ['command'], waitMs);
          await activity.without(id, ['call'], CALLS_MS);
          return operations.run(id, async () => {
            const row = context.again({ id });
            await faultPoint('control.pause.begun');
            return show(
              await pausing.descend(row, as === undefined ? BY_ITSELF : [as], {
                principal,
                cause: 'request',
              }),
            );
          });
        }),
      );
    },

    async resume(principal, ref) {
      const { id, state } = find(principal, ref);
      if (state === 'stopped' || state === 'failed') throw notRunning(find(principal, ref));
      await activity.opened(id);
      const row = await pausing.wake(id, principal);
      if (row.state !== 'active') throw notRunning(row);
      return show(row);
    },

    async lease(principal, ref, { forMs }) {
      const row = find(principal, ref);
      activity.touch(row.id);
      activity.lease(row.id, forMs);
      return database.transaction(() => {
        const leased = sandboxes.update(row.id, { leaseUntilMs: forMs === 0 ? null : now() + forMs });
        note('sandbox.leased', leased, principal, { forMs });
        return show(leased);
      });
    },
  };
  return pausing;
}

function cannot(row: SandboxRow, as: Pause): CayError {
  return new CayError('unsupported', `Sandbox "${row.id}" cannot be ${as} here`, {
    details: { pause: as, backend: row.backend, ...(row.runtime !== null && { runtime: row.runtime }) },
    hint: as === 'archived' ? 'configure an archive store' : 'stop it instead: its files are kept',
  });
}
