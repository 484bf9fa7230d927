/**
 * What is done to a sandbox, one operation at a time: it is made, started, stopped, destroyed, and its
 * record is brought in line with what the backend has. Who may ask for it is not decided here.
 *
 * Preconditions: everything but `make`, `recover` and `follow` is called in line with the other changes of
 * the sandbox.
 */
import { isDeepStrictEqual } from 'node:util';
import {
  CayError,
  isCayError,
  type Limits,
  type Pause,
  type SandboxId,
  type SandboxSpec,
} from '@cay/sdk/protocol';
import { isAway, type Backend, type Observation } from '../../backends/backend.ts';
import { faultPoint } from '../../lib/fault-point.ts';
import type { Operations } from './operations.ts';
import { startExpiry, type Expiry } from './expiry.ts';
import { platformOf, survey } from '../placement/placement.ts';
import type { Idempotency } from '../tenants/idempotency.ts';
import type { Principal } from '../tenants/principal.ts';
import type { Database } from '../../records/database.ts';
import type { Origin, SandboxRecords, SandboxRow } from '../../records/sandboxes.ts';
import { requireTransition } from './transitions.ts';
import { DISK_FULL_RETRY_MS, retryOnDiskFull } from '../capacity/retry-on-disk-full.ts';

export interface LifecycleOptions {
  backend: Backend;
  database: Database;
  sandboxes: SandboxRecords;
  idempotency: Idempotency;
  operations: Operations;
  /**
   * Does what a sandbox's timeout asks for, other than to stop or to destroy it. Resolves whether it could.
   */
  pause(row: SandboxRow): Promise<boolean>;
  /** Lets a sandbox that rests be stopped: it is then here, and its processes can hear of it. */
  halted(row: SandboxRow): Promise<SandboxRow>;
  /** The limits that its next processes get. */
  limitsFor(row: SandboxRow): Promise<Limits>;
  /** Takes away what a sandbox that is gone has left. */
  removed(row: SandboxRow): Promise<void>;
  note(type: string, row: SandboxRow, principal: Principal | undefined, data?: Record<string, unknown>): void;
  /** Records what the sandbox's commands have written so far, before their processes end. */
  drain(id: SandboxId): Promise<void>;
  /** It is recorded as used, because it runs from now on. */
  began(id: SandboxId): void;
  now(): number;
  onError(error: unknown): void;
}

/** Finishes what a sandbox was in the middle of. */
type Unfinished = (row: SandboxRow, observed: Observation) => Promise<void>;

/** Notes an event of a change, as part of recording it. */
export type Tell = (changed: SandboxRow) => void;

export interface Lifecycle {
  readonly expiry: Expiry;
  /** When the sandbox will exist, while it is being made. */
  making(id: SandboxId): Promise<SandboxRow> | undefined;
  /** Runs the operation behind a row in state `creating`. When it fails the row goes away again. */
  make(row: SandboxRow, principal: Principal | undefined): Promise<SandboxRow>;
  /** Makes a recorded sandbox run, and records that it does. */
  activate(row: SandboxRow, tell?: Tell): Promise<SandboxRow>;
  stop(
    row: SandboxRow,
    principal: Principal | undefined,
    options: { cause: string; graceMs?: number },
  ): Promise<SandboxRow>;
  destroy(
    row: SandboxRow,
    principal: Principal | undefined,
    cause: string,
    options?: { onIntent?(): void },
  ): Promise<void>;
  expiryOf(row: Pick<SandboxRow, 'timeoutMs'>): number | null;
  /** Records where the backend says that it stands. */
  standing(row: SandboxRow, observed: Observation, tell?: Tell): SandboxRow;
  /**
   * Records what the backend has, where that differs: a start or stop was cut short, or a sandbox ended by
   * itself.
   */
  settle(row: SandboxRow, observed: Observation): void;
  /** Brings records and backend together after a start: finishes, notes, or takes away. */
  recover(unfinished: Unfinished): Promise<void>;
  /** Notes what the backend saw happen by itself. */
  follow(changes: AsyncIterable<Observation>): Promise<void>;
  close(): Promise<void>;
}

/** When something that has failed is tried again, if nobody does so before. */
const AGAIN_MS = 30_000;
/** How soon what was away when the server opened is asked again. */
const AWAY_AGAIN_MS = 2_000;

/** What a sandbox without processes does not have. */
const ENDED = { reason: null, message: null, runtime: null, expiresAtMs: null, pausedAs: null } as const;

export function openLifecycle(options: LifecycleOptions): Lifecycle {
  const { backend, database, operations, sandboxes, idempotency, note, now, onError } = options;
  const creating = new Map<string, Promise<SandboxRow>>();
  let closed = false;
  const expiry = startExpiry({
    next: () => sandboxes.nextExpiry(),
    due: () => sandboxes.expired(now()),
    shorten: () => sandboxes.shorten(now(), AGAIN_MS),
    expire,
    now,
    onError,
  });

  async function end(row: SandboxRow): Promise<void> {
    await operations.run(row.id, async () => {
      const current = sandboxes.get(row.id);
      if (!current || current.expiresAtMs === null || current.expiresAtMs > now()) return;
      // What is being destroyed has a time only if that has failed.
      if (current.state === 'destroying') await lifecycle.destroy(current, undefined, 'recovery');
      else if (current.onTimeout === 'destroy') await lifecycle.destroy(current, undefined, 'timeout');
      else if (current.onTimeout === 'stop' || !(await options.pause(current)))
        await lifecycle.stop(await options.halted(current), undefined, { cause: 'timeout' });
    });
  }

  /** What cannot be done now is tried again a while later. */
  async function expire(row: SandboxRow): Promise<void> {
    try {
      await end(row);
    } catch (error) {
      const current = sandboxes.get(row.id);
      if (current?.expiresAtMs != null && current.state !== 'destroying')
        sandboxes.update(row.id, { expiresAtMs: now() + AGAIN_MS });
      throw error;
    }
  }

  function settle(row: SandboxRow, observed: Observation): void {
    if (row.pausedAs === 'archived') return;
    const as = pauseOf(observed);
    const running = (observed.phase === 'ready' && !observed.frozen) || observed.phase === 'starting';
    if (running && row.state !== 'active') {
      operations
        .run(row.id, () => lifecycle.activate(row, (active) => note('sandbox.started', active, undefined)))
        .catch(onError);
    } else if (as !== null && row.pausedAs !== as) {
      lifecycle.standing(row, observed, (paused) =>
        note('sandbox.paused', paused, undefined, { as, cause: 'backend' }),
      );
    } else if (
      observed.phase === 'stopped' &&
      as === null &&
      (row.state === 'active' || row.state === 'paused')
    ) {
      lifecycle.standing(row, observed, (stopped) =>
        note('sandbox.stopped', stopped, undefined, { cause: 'backend' }),
      );
    } else if ((row.state === 'active' || row.state === 'paused') && !running && as === null) {
      if (observed.reason === 'host_restarted') haltedByBoot(row, observed);
      else fail(row, observed);
    }
    if (row.onBoot === 'start') startAfterBoot(row.id);
  }

  /** Nothing of it went wrong: it has its files and no processes, as if somebody had stopped it. */
  function haltedByBoot(row: SandboxRow, { message }: Observation): void {
    change(
      row,
      { ...ENDED, state: 'stopped', reason: 'host_restarted', message: message ?? null },
      (stopped) => note('sandbox.stopped', stopped, undefined, { cause: 'host_restarted' }),
    );
  }

  /**
   * What the machine's restart has ended runs again if it asked for that, also if a server died before it was
   * done.
   */
  function startAfterBoot(id: SandboxId): void {
    const asksFor = (row: SandboxRow | undefined) =>
      row?.state === 'stopped' && row.reason === 'host_restarted' && row.onBoot === 'start' ? row : undefined;
    if (!asksFor(sandboxes.get(id))) return;
    operations
      .run(id, async () => {
        const row = closed ? undefined : asksFor(sandboxes.get(id));
        if (row)
          await lifecycle.activate(row, (active) =>
            note('sandbox.started', active, undefined, { cause: 'boot' }),
          );
      })
      .catch(onError);
  }

  function pauseOf({ phase, frozen, suspended }: Observation): Exclude<Pause, 'archived'> | null {
    if (phase === 'stopped' && suspended) return 'suspended';
    return phase === 'hibernated' ? 'hibernated' : phase === 'ready' && frozen ? 'frozen' : null;
  }

  function fail(row: SandboxRow, observed: Observation): void {
    const absent = observed.phase === 'absent';
    const reason = observed.reason ?? (absent ? 'removed_outside' : 'crashed');
    const message = observed.message ?? (absent ? 'The sandbox is gone from its backend' : null);
    change(row, { ...ENDED, state: 'failed', reason, message }, (failed) =>
      note('sandbox.failed', failed, undefined, { reason }),
    );
  }

  /** What is told of a change is recorded with it. */
  function change(row: SandboxRow, changes: Parameters<typeof sandboxes.update>[1], tell?: Tell): SandboxRow {
    return database.transaction(() => {
      const changed = sandboxes.update(row.id, changes);
      tell?.(changed);
      return changed;
    });
  }

  /**
   * What it is started from: its limits may have become more than the operator allows. What only goes on
   * keeps those it has.
   */
  async function startedFrom(row: SandboxRow): Promise<SandboxSpec> {
    const { spec, state, pausedAs, origin } = row;
    const rests = state === 'paused' && pausedAs !== 'archived' && pausedAs !== 'suspended';
    if (state === 'active' || rests || origin?.memory) return spec;
    const limits = await options.limitsFor(row);
    return isDeepStrictEqual(limits, spec.limits) ? spec : { ...spec, limits };
  }

  /** Records that it runs, from now on. */
  function running(
    row: SandboxRow,
    observed: Observation,
    tell?: Tell,
    lowered: Partial<Pick<SandboxRow, 'spec'>> = {},
  ): SandboxRow {
    const changes = {
      ...lowered,
      state: 'active',
      reason: null,
      message: null,
      runtime: observed.runtime ?? null,
      incarnation: observed.incarnation,
      uid: observed.uid ?? null,
      startedAtMs: now(),
      usedAtMs: now(),
      // The time of one that was running before goes on, and of one that was only put to rest to make room.
      expiresAtMs:
        row.state === 'active' || row.expiresAtMs !== null ? row.expiresAtMs : lifecycle.expiryOf(row),
      pausedAs: null,
      origin: null,
    } as const;
    const active = change(row, changes, tell);
    options.began(row.id);
    expiry.changed();
    return active;
  }

  /** Makes it of a snapshot, unless that was done before. */
  async function cloned(
    row: SandboxRow,
    { snapshot, memory, start }: Origin,
    tell: Tell,
  ): Promise<SandboxRow> {
    const snapshots = backend.ability('snapshots');
    if (!snapshots)
      throw new CayError('unsupported', `The ${backend.name} backend cannot make sandboxes of snapshots`);
    const before = await backend.observe(row.id);
    const spec = start ? await startedFrom(row) : row.spec;
    const observed =
      before.phase === 'absent'
        ? await snapshots.clone(row.id, spec, snapshot, { memory, start, project: row.project })
        : before;
    await faultPoint('control.clone.done');
    if (start) return lifecycle.activate(row, tell);
    return change(row, { ...ENDED, state: 'stopped', incarnation: observed.incarnation, origin: null }, tell);
  }

  /**
   * Settles a sandbox in its own order, without making the others wait for that; on a full disk as soon as
   * there is room.
   */
  function lookAt(id: SandboxId): void {
    operations
      .run(id, async () => {
        const row = closed ? undefined : sandboxes.get(id);
        if (row?.state === 'active' || row?.state === 'paused') settle(row, await backend.observe(id));
      })
      .catch((error: unknown) => {
        onError(error);
        if (isCayError(error, 'resource_exhausted')) retryOnDiskFull(() => lookAt(id));
      });
  }

  /** Has a removal that has failed tried again. */
  function remind(id: SandboxId, failure: unknown): void {
    try {
      sandboxes.update(id, {
        state: 'destroying',
        expiresAtMs: now() + (isCayError(failure, 'resource_exhausted') ? DISK_FULL_RETRY_MS : AGAIN_MS),
      });
      expiry.changed();
    } catch (error) {
      // The caller hears of the failure before it. On a full disk there is nowhere to write the time down.
      onError(error);
      retryOnDiskFull(() => removeAgain(id).catch(onError));
    }
  }

  /**
   * Takes away what could not be made. On a full disk its row goes as soon as there is room: the next server
   * would make it again.
   */
  async function unmake(id: SandboxId): Promise<void> {
    await backend.remove(id).catch(onError);
    try {
      database.transaction(() => {
        sandboxes.delete(id);
        idempotency.forget(id);
      });
    } catch (error) {
      onError(error);
      if (isCayError(error, 'resource_exhausted'))
        retryOnDiskFull(() => operations.run(id, () => unmake(id)).catch(onError));
    }
  }

  /** In line. */
  async function recoverOne(row: SandboxRow, observed: Observation, unfinished: Unfinished): Promise<void> {
    if (row.pausedAs === 'archived') await backend.remove(row.id);
    else if (row.operation) await unfinished(row, observed);
    else settle(row, observed);
  }

  /**
   * Its platform does not answer yet, so nothing is known of it: it stays as it is recorded until something
   * is.
   */
  function recoverLater(id: SandboxId, unfinished: Unfinished, waitMs = AWAY_AGAIN_MS): void {
    const again = () =>
      operations.run(id, async () => {
        const row = closed ? undefined : sandboxes.get(id);
        if (row && row.state !== 'destroying') await recoverOne(row, await backend.observe(id), unfinished);
      });
    const failed = (error: unknown) =>
      isAway(error) ? recoverLater(id, unfinished, Math.min(2 * waitMs, AGAIN_MS)) : onError(error);
    setTimeout(() => void again().catch(failed), waitMs).unref();
  }

  function removeAgain(id: SandboxId): Promise<void> {
    return operations.run(id, async () => {
      const row = closed ? undefined : sandboxes.get(id);
      const begun = row && (row.state === 'destroying' || (await backend.observe(id)).phase === 'absent');
      if (begun) await lifecycle.destroy(row, undefined, 'recovery');
    });
  }

  const lifecycle: Lifecycle = {
    expiry,
    making: (id) => creating.get(id),

    make(row, principal) {
      const made = operations.run(row.id, async () => {
        try {
          const tell: Tell = (made) =>
            note('sandbox.created', made, principal, { template: row.spec.template, runtime: made.runtime });
          return row.origin ? await cloned(row, row.origin, tell) : await lifecycle.activate(row, tell);
        } catch (error) {
          await unmake(row.id);
          throw error;
        } finally {
          creating.delete(row.id);
        }
      });
      creating.set(row.id, made);
      return made;
    },

    async activate(row, tell) {
      const spec = await startedFrom(row);
      const observed = await backend.ensure(row.id, spec, { project: row.project });
      const andLowered: Tell = (active) => {
        tell?.(active);
        note('sandbox.updated', active, undefined, { fields: ['limits'], cause: 'policy' });
      };
      try {
        return spec === row.spec
          ? running(row, observed, tell)
          : running(row, observed, andLowered, { spec });
      } catch (error) {
        // What is recorded as resting must not run: nobody could end it.
        if (row.state === 'stopped' || row.state === 'failed')
          await backend.stop(row.id, { graceMs: 0 }).catch(onError);
        throw error;
      }
    },

    async stop(row, principal, { cause, graceMs }) {
      // Who stops what the machine's restart has ended does not want it started by the next server.
      if (row.state === 'stopped')
        return row.reason === null ? row : sandboxes.update(row.id, { reason: null, message: null });
      requireTransition(row.id, row.state, 'stopped');
      // Of one that rests on disk there is nobody to ask.
      if (row.state === 'active' || row.pausedAs === 'frozen') await options.drain(row.id).catch(onError);
      await backend.stop(row.id, graceMs === undefined ? {} : { graceMs });
      try {
        return change(row, { ...ENDED, state: 'stopped' }, (stopped) =>
          note('sandbox.stopped', stopped, principal, { cause }),
        );
      } catch (error) {
        // Whoever follows the backend records it as soon as there is room.
        throw unrecorded(error, `Sandbox "${row.id}" has been stopped`);
      }
    },

    async destroy(row, principal, cause, { onIntent } = {}) {
      try {
        sandboxes.update(row.id, { state: 'destroying', expiresAtMs: null });
        onIntent?.();
      } catch (error) {
        // A full disk is no reason to keep what fills it. After a crash halfway the row is of a sandbox that
        // is gone, and says so.
        if (!isCayError(error, 'resource_exhausted')) throw error;
      }
      try {
        await backend.remove(row.id);
      } catch (error) {
        remind(row.id, error);
        throw error;
      }
      try {
        database.transaction(() => {
          sandboxes.delete(row.id);
          note('sandbox.removed', row, principal, { cause });
        });
      } catch (error) {
        remind(row.id, error);
        throw unrecorded(error, `Sandbox "${row.id}" has been removed`);
      }
      await options.removed(row).catch(onError);
    },

    standing(row, observed, tell) {
      const as = pauseOf(observed);
      const { incarnation } = observed;
      if (as !== null)
        return change(row, { state: 'paused', pausedAs: as, incarnation, expiresAtMs: null }, tell);
      if (observed.phase === 'ready') return running(row, observed, tell);
      if (observed.phase === 'stopped') return change(row, { ...ENDED, state: 'stopped', incarnation }, tell);
      fail(row, observed);
      return sandboxes.get(row.id)!;
    },

    settle,
    expiryOf: (row) => (row.timeoutMs === null ? null : now() + row.timeoutMs),

    async recover(unfinished) {
      const { found, unsure } = await survey(backend, (platform) => platform.list());
      const known = new Map(found.map((each) => [each.it.id, each]));
      for (const row of sandboxes.list({})) {
        const there = known.get(row.id);
        const observed: Observation = there?.it ?? { id: row.id, phase: 'absent', incarnation: 0 };
        known.delete(row.id);
        if (row.state === 'creating') lifecycle.make(row, undefined).catch(onError);
        else if (row.state === 'destroying')
          operations.run(row.id, () => lifecycle.destroy(row, undefined, 'recovery')).catch(onError);
        else if (!there && unsure(platformOf(row, backend))) recoverLater(row.id, unfinished);
        else if (row.pausedAs === 'archived' || row.operation)
          await operations.run(row.id, () => recoverOne(row, observed, unfinished)).catch(onError);
        else settle(row, observed);
      }
      // What no record knows was never acknowledged to anybody.
      for (const [id, { platform }] of known) await platform.remove(id).catch(onError);
    },

    async follow(changes) {
      for await (const observed of changes) {
        if (observed.phase === 'ready' || observed.phase === 'starting' || observed.phase === 'hibernated')
          continue;
        lookAt(observed.id);
      }
    },

    async close() {
      closed = true;
      expiry.stop();
      await Promise.allSettled(creating.values());
    },
  };
  return lifecycle;
}

/**
 * A full disk says that nothing was done; what was done nevertheless is told as something that is not known
 * yet.
 */
function unrecorded(error: unknown, what: string): unknown {
  if (!isCayError(error, 'resource_exhausted')) return error;
  return new CayError('unavailable', `${what}, which cannot be recorded yet: the disk is full`, {
    cause: error,
  });
}
