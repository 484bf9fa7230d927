/**
 * Makes sandboxes that go on from another one: one capture, and as many children as asked for, all or none.
 *
 * The call is recorded before the capture, and its children before any is made. After a crash the children of
 * a call with an idempotency key are finished, because the caller can repeat it; others are removed
 * (`recovery/recover-forks.ts`).
 */
import { randomUUID } from 'node:crypto';
import { CayError, ForkSchema, newId, type Forked } from '@cay/sdk/protocol';
import { faultPoint } from '../../lib/fault-point.ts';
import { KeyedQueue } from '../../lib/keyed-queue.ts';
import { requireLimits } from '../../policy/bound-limits.ts';
import type { ForkRow } from '../../records/tables/forks.ts';
import type { SandboxRow } from '../../records/tables/sandbox-row.ts';
import { showSnapshot, type SnapshotRow } from '../../records/tables/snapshot-row.ts';
import type { Core } from '../core.ts';
import type { Waker } from '../pausing/wake.ts';
import type { Principal } from '../tenants/principal.ts';
import { childName, type ForkChildren, type ForkRequest } from './fork-children.ts';
import { noMemory, withMemoryHint } from './memory-errors.ts';
import type { SnapshotRegistry } from './snapshot-registry.ts';
import type { TravelVerbs } from './snapshot.ts';

export function forkVerb({
  activity,
  capabilitiesOf,
  clock,
  idempotency,
  lookup,
  onError,
  operations,
  policy,
  records,
  forkChildren,
  registry,
  waker,
}: Pick<
  Core,
  | 'activity'
  | 'capabilitiesOf'
  | 'clock'
  | 'idempotency'
  | 'lookup'
  | 'onError'
  | 'operations'
  | 'policy'
  | 'records'
> & {
  forkChildren: ForkChildren;
  registry: SnapshotRegistry;
  waker: Waker;
}): Pick<TravelVerbs, 'fork'> {
  /** Calls with one idempotency key run one after the other, so that only the first makes sandboxes. */
  const { forks, sandboxes, snapshots } = records;
  const calls = new KeyedQueue<string>();

  /** Children have the limits of their parent. The operator may have lowered the maximum since. */
  async function requireAllowed({ spec, timeoutMs }: SandboxRow): Promise<void> {
    const { abilities } = await capabilitiesOf(spec.platform);
    const hint = 'change it on the sandbox first: its children have the same';
    requireLimits(policy, { ...spec.limits, timeoutMs }, abilities, hint);
  }

  async function recordCall(
    parent: SandboxRow,
    snapshot: SnapshotRow['id'],
    keyed: boolean,
  ): Promise<ForkRow> {
    const { project } = parent;
    const createdAtMs = clock.now();
    const row: ForkRow = {
      id: randomUUID(),
      project,
      snapshot,
      children: [],
      keyed,
      made: false,
      createdAtMs,
    };
    await forks.insert(row);
    return row;
  }

  /** The snapshot that the children start from: `from`, or one that is taken now with this id. */
  async function capture(
    parent: SandboxRow,
    request: ForkRequest,
    principal: Principal,
    id: SnapshotRow['id'],
  ): Promise<{ parent: SandboxRow; snapshot: SnapshotRow }> {
    if (request.from !== undefined) {
      const snapshot = await registry.resolve(records, parent.project, request.from, parent.id);
      if (request.memory && !snapshot.memory) throw noMemory(snapshot);
      return { parent, snapshot: await registry.using(snapshot, async (row) => row) };
    }
    return operations.enqueue(parent.id, async () => {
      const thaw = request.memory !== false;
      const row = await waker.ensureUnarchived(await lookup.reload(parent), { thaw });
      const quiet = activity.count(row.id, 'command') === 0;
      const memory = request.memory ?? 'if possible';
      const snapshot = await registry.take(
        row,
        { id, cause: 'fork', memory, quiet, becomesBase: true },
        principal,
      );
      return { parent: row, snapshot };
    });
  }

  async function forkOnce(
    principal: Principal,
    found: SandboxRow,
    request: ForkRequest,
    key: string | undefined,
  ): Promise<Forked> {
    await requireAllowed(found);
    const id = newId('snap');
    const call = await recordCall(found, id, key !== undefined);
    try {
      using _ = registry.pin(id);
      const { parent, snapshot } = await capture(found, request, principal, id);
      using _from = registry.pin(snapshot.id);
      await faultPoint('control.fork.captured');
      const fork = await forkChildren.record(call, parent, snapshot, request, key);
      await faultPoint('control.fork.recorded');
      await forkChildren.make(fork, principal, parent.id);
      return await resultOf(fork, key);
    } catch (error) {
      await undo(call).catch(onError);
      throw withMemoryHint(error);
    }
  }

  async function undo(call: ForkRow): Promise<void> {
    await forkChildren.undo((await forks.get(call.id)) ?? call);
  }

  async function resultOf(fork: ForkRow, key: string | undefined): Promise<Forked> {
    const rows = await Promise.all(fork.children.map((id) => sandboxes.get(id)));
    const snapshot = await snapshots.get(fork.snapshot);
    if (snapshot && rows.every((row) => row !== undefined))
      return { snapshot: showSnapshot(snapshot), sandboxes: await lookup.showAll(rows) };
    throw new CayError(
      'not_found',
      `A sandbox or the snapshot of the fork with idempotency key "${key}" does not exist any more`,
      { hint: 'use a new key for another fork' },
    );
  }

  return {
    async fork(principal, ref, given, { idempotencyKey: key } = {}) {
      const request = ForkSchema.parse(given) as ForkRequest;
      if (request.namePrefix !== undefined) childName(request.namePrefix, request.count);
      const found = await lookup.find(principal, ref);
      const start = () => operations.claim(found.id, 'fork', () => forkOnce(principal, found, request, key));
      if (key === undefined) return start();
      return calls.run(`${principal.project}:${key}`, async () => {
        // Looked for again when the key is recorded, which is after the capture.
        const known = await records.idempotency.find(principal.project, key, { fork: found.id, ...request });
        if (known === undefined) {
          await idempotency.requireRoom(principal.project);
          return start();
        }
        await forkChildren.settled(known);
        const fork = await forks.get(known);
        return fork ? resultOf(fork, key) : start();
      });
    },
  };
}
