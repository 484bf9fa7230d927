/**
 * Makes sandboxes of what another one is: one capture, and as many children as are asked for, all of them or
 * none.
 *
 * The call is recorded with its children before any is made. After a crash those of a call that can be
 * repeated are finished, and those of one that nobody can ask about any more are taken away.
 */
import { randomUUID } from 'node:crypto';
import { CayError, ForkSchema, SandboxNameSchema, newId, type Fork, type Forked } from '@cay/sdk/protocol';
import { faultPoint } from '../../lib/fault-point.ts';
import { KeyedQueue } from '../../lib/keyed-queue.ts';
import { requireLimits } from '../../policy/bound-limits.ts';
import { withHint } from '../pausing/archive.ts';
import type { Context } from '../context.ts';
import type { Keyed, TravelVerbs } from '../control.ts';
import type { SnapshotRegistry } from './snapshot-registry.ts';
import type { Pausing } from '../pausing/pausing.ts';
import type { Principal } from '../tenants/principal.ts';
import type { ForkRow } from '../../records/forks.ts';
import type { SandboxRow } from '../../records/sandboxes.ts';
import { showSnapshot, type SnapshotRow } from '../../records/snapshots.ts';

export interface Forking extends Pick<TravelVerbs, 'fork'> {
  /** Takes away the children of calls that nobody can repeat. Before the other records are looked at. */
  undoUnkeyed(): Promise<void>;
  /** Waits for the children that are being made again, and then calls the others done. */
  finishKeyed(): void;
}

type ForkRequest = Required<Pick<Fork, 'count' | 'labels'>> & Fork;

export function openForking(context: Context, registry: SnapshotRegistry, pausing: Pausing): Forking {
  const {
    activity,
    backend,
    database,
    operations,
    find,
    forks,
    idempotency,
    lifecycle,
    note,
    now,
    onError,
    policy,
    pressure,
    quota,
    sandboxes,
    show,
    snapshots,
  } = context;
  const finishing = new Map<string, Promise<void>>();
  const calls = new KeyedQueue<string>();

  function childOf(
    parent: SandboxRow,
    request: ForkRequest,
    index: number,
    origin: NonNullable<SandboxRow['origin']>,
  ): SandboxRow {
    return {
      ...parent,
      id: newId('sbx'),
      name: request.namePrefix === undefined ? null : childName(request.namePrefix, index + 1),
      state: 'creating',
      reason: null,
      message: null,
      runtime: null,
      labels: { ...parent.labels, ...request.labels },
      expiresAtMs: null,
      incarnation: 0,
      uid: null,
      createdAtMs: now(),
      startedAtMs: null,
      pausedAs: null,
      leaseUntilMs: null,
      usedAtMs: null,
      base: origin.snapshot,
      turn: 0,
      origin,
      operation: null,
      imageBytes: null,
    };
  }

  /** Records that something is about to be captured, for nobody but this call. */
  function begin(parent: SandboxRow, snapshot: SnapshotRow['id'], keyed: boolean): ForkRow {
    const fork: ForkRow = {
      id: randomUUID(),
      project: parent.project,
      snapshot,
      children: [],
      keyed,
      made: false,
      createdAtMs: now(),
    };
    forks.insert(fork);
    return fork;
  }

  /** Records all that the call will make, or nothing. */
  function record(
    fork: ForkRow,
    parent: SandboxRow,
    snapshot: SnapshotRow,
    request: ForkRequest,
    key: string | undefined,
  ): ForkRow {
    const start = parent.state === 'active' || parent.state === 'paused';
    const memory = start && snapshot.memory && request.memory !== false;
    const children = Array.from({ length: request.count }, (_, index) =>
      childOf(parent, request, index, { snapshot: snapshot.id, memory, start }),
    );
    const recorded = { ...fork, snapshot: snapshot.id, children: children.map(({ id }) => id) };
    database.transaction(() => {
      for (const child of children) {
        const { memoryBytes, diskBytes } = child.spec.limits;
        quota.require(child.project, {
          sandboxes: 1,
          limits: start ? child.spec.limits : { cpus: 0, memoryBytes: 0, diskBytes, pids: 0 },
        });
        pressure.admit({ memoryBytes, diskBytes }, { starts: start, platform: child.spec.platform });
        sandboxes.insert(child);
      }
      forks.update(fork.id, recorded);
      if (key !== undefined)
        idempotency.remember(fork.project, key, { fork: parent.id, ...request }, fork.id, fork.createdAtMs);
    });
    return recorded;
  }

  /** Settles when all children are there; otherwise none is, and the call is forgotten. */
  function make(
    fork: ForkRow,
    principal?: Principal,
    parent = snapshots.get(fork.snapshot)?.sandbox,
  ): Promise<void> {
    const made = (async () => {
      const results = await Promise.allSettled(
        fork.children.map(async (id) => {
          const row = sandboxes.get(id);
          if (!row) throw new CayError('not_found', `Sandbox "${id}" does not exist`);
          return lifecycle.making(id) ?? (row.state === 'creating' ? lifecycle.make(row, principal) : row);
        }),
      );
      const failed = results.find(({ status }) => status === 'rejected');
      if (failed?.status === 'rejected') throw failed.reason;
      await faultPoint('control.fork.made');
      database.transaction(() => {
        const { snapshot, children, project } = fork;
        if (parent !== undefined)
          note('sandbox.forked', { id: parent, project }, principal, { snapshot, children });
        if (fork.keyed) forks.made(fork.id);
        else forks.delete(fork.id);
      });
    })()
      .catch(async (error: unknown) => {
        await undo(fork);
        throw error;
      })
      .finally(() => finishing.delete(fork.id));
    finishing.set(fork.id, made);
    return made;
  }

  async function undo(fork: ForkRow): Promise<void> {
    await Promise.all(
      fork.children.map((id) =>
        operations.run(id, async () => {
          const row = sandboxes.get(id);
          if (row) await lifecycle.destroy(row, undefined, 'fork failed').catch(onError);
        }),
      ),
    );
    database.transaction(() => {
      forks.delete(fork.id);
      idempotency.forget(fork.id);
    });
    stepBack(fork);
    await registry.dropLeft(sandboxes.get(snapshots.get(fork.snapshot)?.sandbox ?? ''));
  }

  /**
   * Nothing came of the capture, so the parent stands where it stood, and the capture is anybody's no more.
   */
  function stepBack({ snapshot }: ForkRow): void {
    const captured = snapshots.get(snapshot);
    if (
      captured?.cause !== 'fork' ||
      sandboxes.standingOn(snapshot).some(({ id }) => id !== captured.sandbox)
    )
      return;
    if (sandboxes.get(captured.sandbox)?.base === snapshot)
      sandboxes.update(captured.sandbox, { base: captured.parent });
  }

  async function answer(fork: ForkRow, key: string | undefined): Promise<Forked> {
    const rows = fork.children.map((id) => sandboxes.get(id));
    const snapshot = snapshots.get(fork.snapshot);
    if (snapshot && rows.every((row) => row !== undefined))
      return { snapshot: showSnapshot(snapshot), sandboxes: rows.map(show) };
    throw new CayError(
      'not_found',
      `What the fork with idempotency key "${key}" made does not exist any more`,
      {
        hint: 'use a new key to make others',
      },
    );
  }

  /** What the children come from: a snapshot that is there, or one of this moment. */
  async function origin(
    parent: SandboxRow,
    request: ForkRequest,
    principal: Principal,
    id: SnapshotRow['id'],
  ): Promise<{ parent: SandboxRow; snapshot: SnapshotRow }> {
    if (request.from !== undefined) {
      const snapshot = registry.resolve(parent.project, request.from, parent.id);
      if (request.memory && !snapshot.memory) throw noMemory(snapshot);
      return { parent, snapshot: await registry.using(snapshot, async (row) => row) };
    }
    return operations.run(parent.id, async () => {
      const row = await pausing.present(context.again(parent), { thawed: request.memory !== false });
      const quiet = activity.count(row.id, 'command') === 0;
      const memory = request.memory ?? 'if possible';
      return {
        parent: row,
        snapshot: await registry.take(row, { id, cause: 'fork', memory, quiet, stands: true }, principal),
      };
    });
  }

  /** Children have the limits of their parent, which may be more than the operator allows by now. */
  async function requireForkable({ spec, timeoutMs }: SandboxRow): Promise<void> {
    const { abilities } = await context.capabilitiesOf(spec.platform);
    requireLimits(
      policy,
      { ...spec.limits, timeoutMs },
      abilities,
      'change it on the sandbox first: its children have the same',
    );
  }

  async function forked(
    principal: Principal,
    found: SandboxRow,
    request: ForkRequest,
    key: string | undefined,
  ): Promise<Forked> {
    await requireForkable(found);
    const id = newId('snap');
    const begun = begin(found, id, key !== undefined);
    try {
      using _ = registry.pin(id);
      const { parent, snapshot } = await origin(found, request, principal, id);
      using _from = registry.pin(snapshot.id);
      await faultPoint('control.fork.captured');
      const fork = record(begun, parent, snapshot, request, key);
      await faultPoint('control.fork.recorded');
      await make(fork, principal, parent.id);
      return answer(fork, key);
    } catch (error) {
      await undo(forks.get(begun.id) ?? begun).catch(onError);
      throw withHint(error);
    }
  }

  return {
    async fork(principal, ref, given, { idempotencyKey: key }: Keyed = {}) {
      const request = ForkSchema.parse(given) as ForkRequest;
      if (request.namePrefix !== undefined) childName(request.namePrefix, request.count);
      const found = find(principal, ref);
      const start = () => operations.declare(found.id, 'fork', () => forked(principal, found, request, key));
      if (key === undefined) return start();
      // Calls with one key come one after the other, so that only the first makes anything.
      return calls.run(`${principal.project}:${key}`, async () => {
        const known = idempotency.find(principal.project, key, { fork: found.id, ...request });
        if (known === undefined) {
          // Asked again when it is recorded, which is after the capture.
          idempotency.requireRoom(principal.project);
          return start();
        }
        await finishing.get(known)?.catch(() => {});
        const fork = forks.get(known);
        return fork ? answer(fork, key) : start();
      });
    },

    async undoUnkeyed() {
      for (const fork of forks.unmade()) {
        if (fork.keyed && fork.children.length > 0) continue;
        for (const id of fork.children) {
          await backend.remove(id).catch(onError);
          sandboxes.delete(id);
        }
        stepBack(fork);
        forks.delete(fork.id);
      }
    },

    finishKeyed() {
      for (const fork of forks.unmade()) make(fork, undefined).catch(onError);
    },
  };
}

function childName(prefix: string, index: number): string {
  const name = SandboxNameSchema.safeParse(`${prefix}-${index}`);
  if (name.success) return name.data;
  throw new CayError(
    'invalid_argument',
    `"${prefix}" cannot begin the names of sandboxes: ${name.error.issues[0]?.message}`,
  );
}

export function noMemory(snapshot: SnapshotRow): CayError {
  return new CayError('failed_precondition', `Snapshot "${snapshot.id}" has files and no processes`, {
    details: { memory: false },
    hint: 'ask for it without memory',
  });
}
