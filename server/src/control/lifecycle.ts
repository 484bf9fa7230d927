/**
 * What is done to a sandbox, one deed at a time: it is made, started, stopped, destroyed, and its
 * record is brought in line with what the backend has. Who may ask for it is not decided here.
 *
 * Preconditions: everything but `make`, `recover` and `follow` is called from within `queue`.
 */
import { isCayError, type SandboxId } from '@cay/sdk/protocol';
import type { Backend, Observation } from '../backends/backend.ts';
import { KeyedQueue } from '../lib/keyed-queue.ts';
import { startExpiry, type Expiry } from './expiry.ts';
import type { Idempotency } from './idempotency.ts';
import type { Principal } from './principal.ts';
import type { Database } from './records/database.ts';
import type { SandboxRecords, SandboxRow } from './records/sandboxes.ts';
import { requireTransition } from './transitions.ts';

export interface LifecycleOptions {
  backend: Backend;
  database: Database;
  sandboxes: SandboxRecords;
  idempotency: Idempotency;
  note(type: string, row: SandboxRow, principal: Principal | undefined, data?: Record<string, unknown>): void;
  now(): number;
  onError(error: unknown): void;
}

export interface Lifecycle {
  /** Orders the changes of each sandbox. */
  readonly queue: KeyedQueue<string>;
  readonly expiry: Expiry;
  /** When the sandbox will exist, while it is being made. */
  making(id: SandboxId): Promise<SandboxRow> | undefined;
  /** Runs the deed behind a row in state `creating`. When it fails the row goes away again. */
  make(row: SandboxRow, principal: Principal | undefined): Promise<SandboxRow>;
  /** Makes a recorded sandbox run, and records that it does. */
  activate(row: SandboxRow): Promise<SandboxRow>;
  stop(row: SandboxRow, principal: Principal | undefined, options: { cause: string; graceMs?: number }): Promise<SandboxRow>;
  destroy(row: SandboxRow, principal: Principal | undefined, cause: string): Promise<void>;
  expiryOf(row: Pick<SandboxRow, 'timeoutMs'>): number | null;
  /** Brings records and backend together after a start: finishes, notes, or takes away. */
  recover(): Promise<void>;
  /** Notes what the backend saw happen by itself. */
  follow(changes: AsyncIterable<Observation>): Promise<void>;
  close(): Promise<void>;
}

/** When a removal that has failed is tried again, if nobody does so before. */
const DESTROY_AGAIN_MS = 30_000;

export function openLifecycle(options: LifecycleOptions): Lifecycle {
  const { backend, database, sandboxes, idempotency, note, now, onError } = options;
  const queue = new KeyedQueue<string>();
  const creating = new Map<string, Promise<SandboxRow>>();
  const expiry = startExpiry({ next: () => sandboxes.nextExpiry(), due: () => sandboxes.expired(now()), expire, now, onError });

  async function expire(row: SandboxRow): Promise<void> {
    await queue.run(row.id, async () => {
      const current = sandboxes.get(row.id);
      if (!current || current.expiresAtMs === null || current.expiresAtMs > now()) return;
      // What is being destroyed has a time only if that has failed.
      if (current.state === 'destroying') await lifecycle.destroy(current, undefined, 'recovery');
      else if (current.onTimeout === 'destroy') await lifecycle.destroy(current, undefined, 'timeout');
      else await lifecycle.stop(current, undefined, { cause: 'timeout' });
    });
  }

  /** Records what the backend has, where that differs: a start or stop was cut short, or a sandbox ended by itself. */
  function settle(row: SandboxRow, observed: Observation): void {
    const running = observed.phase === 'ready' || observed.phase === 'starting';
    if (row.state === 'active' && observed.phase === 'stopped') {
      const stopped = sandboxes.update(row.id, { state: 'stopped', runtime: null, expiresAtMs: null });
      note('sandbox.stopped', stopped, undefined, { cause: 'backend' });
    } else if (row.state === 'active' && !running) fail(row, observed);
    else if (row.state !== 'active' && running) {
      queue.run(row.id, async () => note('sandbox.started', await lifecycle.activate(row), undefined)).catch(onError);
    }
  }

  function fail(row: SandboxRow, observed: Observation): void {
    const absent = observed.phase === 'absent';
    const failed = sandboxes.update(row.id, {
      state: 'failed',
      reason: observed.reason ?? (absent ? 'removed_outside' : 'crashed'),
      message: observed.message ?? (absent ? 'The sandbox is gone from its backend' : null),
      runtime: null,
      expiresAtMs: null,
    });
    note('sandbox.failed', failed, undefined, { reason: failed.reason });
  }

  /** Has a removal that has failed tried again. */
  function remind(id: SandboxId): void {
    try {
      sandboxes.update(id, { state: 'destroying', expiresAtMs: now() + DESTROY_AGAIN_MS });
      expiry.changed();
    } catch (error) {
      // The caller hears of the failure before it.
      onError(error);
    }
  }

  const lifecycle: Lifecycle = {
    queue,
    expiry,
    making: (id) => creating.get(id),

    make(row, principal) {
      const made = queue.run(row.id, async () => {
        try {
          const active = await lifecycle.activate(row);
          note('sandbox.created', active, principal, { template: row.spec.template, runtime: active.runtime });
          return active;
        } catch (error) {
          await backend.remove(row.id).catch(onError);
          database.transaction(() => {
            sandboxes.delete(row.id);
            idempotency.forget(row.id);
          });
          throw error;
        } finally {
          creating.delete(row.id);
        }
      });
      creating.set(row.id, made);
      return made;
    },

    async activate(row) {
      const observed = await backend.ensure(row.id, row.spec);
      const active = sandboxes.update(row.id, {
        state: 'active',
        reason: null,
        message: null,
        runtime: observed.runtime ?? null,
        incarnation: observed.incarnation,
        startedAtMs: now(),
        expiresAtMs: lifecycle.expiryOf(row),
      });
      expiry.changed();
      return active;
    },

    async stop(row, principal, { cause, graceMs }) {
      if (row.state === 'stopped') return row;
      requireTransition(row.id, row.state, 'stopped');
      await backend.stop(row.id, graceMs === undefined ? {} : { graceMs });
      const stopped = sandboxes.update(row.id, { state: 'stopped', reason: null, message: null, runtime: null, expiresAtMs: null });
      note('sandbox.stopped', stopped, principal, { cause });
      return stopped;
    },

    async destroy(row, principal, cause) {
      try {
        sandboxes.update(row.id, { state: 'destroying', expiresAtMs: null });
      } catch (error) {
        // A full disk is no reason to keep what fills it. After a crash halfway the row is of a sandbox that is gone, and says so.
        if (!isCayError(error, 'resource_exhausted')) throw error;
      }
      try {
        await backend.remove(row.id);
      } catch (error) {
        remind(row.id);
        throw error;
      }
      sandboxes.delete(row.id);
      note('sandbox.removed', row, principal, { cause });
    },

    expiryOf: (row) => (row.timeoutMs === null ? null : now() + row.timeoutMs),

    async recover() {
      const known = new Map((await backend.list()).map((observed) => [observed.id, observed]));
      for (const row of sandboxes.list({})) {
        const observed = known.get(row.id) ?? { id: row.id, phase: 'absent', incarnation: 0 };
        known.delete(row.id);
        if (row.state === 'creating') lifecycle.make(row, undefined).catch(onError);
        else if (row.state === 'destroying') queue.run(row.id, () => lifecycle.destroy(row, undefined, 'recovery')).catch(onError);
        else settle(row, observed);
      }
      // What no record knows was never acknowledged to anybody.
      for (const id of known.keys()) await backend.remove(id).catch(onError);
    },

    async follow(changes) {
      for await (const observed of changes) {
        if (observed.phase === 'ready' || observed.phase === 'starting') continue;
        // In the order of its own sandbox, and without making the others wait for that.
        queue
          .run(observed.id, async () => {
            const row = sandboxes.get(observed.id);
            if (row?.state === 'active') settle(row, await backend.observe(observed.id));
          })
          .catch(onError);
      }
    },

    async close() {
      expiry.stop();
      await Promise.allSettled(creating.values());
    },
  };
  return lifecycle;
}
