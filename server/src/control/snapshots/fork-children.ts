/** The children of a fork: recorded together, made together, and undone together if one cannot be made. */
import { CayError, SandboxNameSchema, type Fork } from '@cay/sdk/protocol';
import { faultPoint } from '../../lib/fault-point.ts';
import { pick } from '../../lib/pick.ts';
import type { Transaction } from '../../records/records.ts';
import type { ForkRow } from '../../records/tables/forks.ts';
import type { SandboxRow } from '../../records/tables/sandbox-row.ts';
import type { SnapshotRow } from '../../records/tables/snapshot-row.ts';
import type { Core } from '../core.ts';
import type { SandboxDestroyer } from '../sandboxes/destroy-sandbox.ts';
import type { SandboxMaker } from '../sandboxes/make-sandbox.ts';
import { newSandboxRow } from '../sandboxes/new-sandbox-row.ts';
import type { Principal } from '../tenants/principal.ts';
import type { SnapshotRegistry } from './snapshot-registry.ts';

export type ForkRequest = Required<Pick<Fork, 'count' | 'labels'>> & Fork;

export interface ForkChildren {
  /** Records all children and the idempotency key in one transaction. */
  record(
    fork: ForkRow,
    parent: SandboxRow,
    snapshot: SnapshotRow,
    request: ForkRequest,
    idempotencyKey: string | undefined,
  ): Promise<ForkRow>;
  /** Makes the recorded children. If one cannot be made, all are removed and the fork is forgotten. */
  make(fork: ForkRow, principal?: Principal, parent?: SandboxRow['id']): Promise<void>;
  /** Resolves when a `make` of this fork has settled. Never rejects. */
  settled(id: ForkRow['id']): Promise<void>;
  undo(fork: ForkRow): Promise<void>;
  /** Makes the parent's base what it was before the capture, if nothing came of the capture. */
  restoreBase(fork: ForkRow): Promise<void>;
}

export function openForkChildren({
  clock,
  idempotency,
  onError,
  operations,
  pressure,
  quota,
  recordEvent,
  records,
  destroyer,
  maker,
  registry,
}: Pick<
  Core,
  'clock' | 'idempotency' | 'onError' | 'operations' | 'pressure' | 'quota' | 'recordEvent' | 'records'
> & {
  destroyer: SandboxDestroyer;
  maker: SandboxMaker;
  registry: SnapshotRegistry;
}): ForkChildren {
  const { sandboxes, snapshots } = records;
  const underWay = new Map<ForkRow['id'], Promise<void>>();
  /** Functions that release children that were recorded. `make` calls them. */
  const holds = new Map<ForkRow['id'], (() => Promise<void>)[]>();

  async function admit({ project, spec }: SandboxRow, starts: boolean, tx: Transaction): Promise<void> {
    const { memoryBytes, diskBytes } = spec.limits;
    const limits = starts ? spec.limits : { cpus: 0, memoryBytes: 0, diskBytes, pids: 0 };
    await quota.require(tx, project, { sandboxes: 1, limits });
    await pressure.admit({ memoryBytes, diskBytes }, { starts, platform: spec.platform, tx });
  }

  async function makeOne(id: SandboxRow['id'], principal: Principal | undefined): Promise<void> {
    const row = await sandboxes.get(id);
    if (!row) throw new CayError('not_found', `Sandbox "${id}" does not exist`);
    // After a restart recovery makes it already.
    await (maker.making(id) ?? (row.state === 'creating' && maker.make(row, principal)));
  }

  async function makeAll(fork: ForkRow, principal?: Principal, given?: SandboxRow['id']): Promise<void> {
    const { id, snapshot, children, project, keyed } = fork;
    const parent = given ?? (await snapshots.get(snapshot))?.sandbox;
    try {
      const results = await Promise.allSettled(children.map((child) => makeOne(child, principal)));
      const failed = results.find((result) => result.status === 'rejected');
      if (failed) throw failed.reason;
      await faultPoint('control.fork.made');
      await records.transaction(async (tx) => {
        if (parent !== undefined)
          await recordEvent(tx, 'sandbox.forked', { id: parent, project }, principal, { snapshot, children });
        if (keyed) await tx.forks.made(id);
        else await tx.forks.delete(id);
      });
    } catch (error) {
      await forkChildren.undo(fork);
      throw error;
    }
  }

  async function makeHeld(...given: Parameters<ForkChildren['make']>): Promise<void> {
    const [{ id }] = given;
    try {
      await makeAll(...given);
    } finally {
      underWay.delete(id);
      const held = holds.get(id) ?? [];
      holds.delete(id);
      await Promise.all(held.map((release) => release()));
    }
  }

  const forkChildren: ForkChildren = {
    async record(fork, parent, snapshot, request, idempotencyKey) {
      const start = parent.state === 'active' || parent.state === 'paused';
      const memory = start && snapshot.memory && request.memory !== false;
      const children = Array.from({ length: request.count }, (_, index) =>
        newSandboxRow({
          ...pick(parent, INHERITED),
          name: request.namePrefix === undefined ? null : childName(request.namePrefix, index + 1),
          labels: { ...parent.labels, ...request.labels },
          createdAtMs: clock.now(),
          origin: { snapshot: snapshot.id, memory, start },
        }),
      );
      const recorded = { ...fork, snapshot: snapshot.id, children: children.map(({ id }) => id) };
      const held = await records.transaction(async (tx) => {
        // Another server may have removed it meanwhile.
        if ((await tx.snapshots.get(snapshot.id))?.state !== 'kept')
          throw new CayError('not_found', `Snapshot "${snapshot.id}" does not exist`);
        const releases: (() => Promise<void>)[] = [];
        for (const child of children) {
          await admit(child, start, tx);
          await tx.sandboxes.insert(child);
          releases.push(await operations.hold(tx, child.id, 'create'));
        }
        if (!(await tx.forks.update(fork.id, recorded)))
          throw new CayError('conflict', 'The fork was undone by another server', { hint: 'fork again' });
        const digested = { fork: parent.id, ...request };
        if (idempotencyKey !== undefined)
          await idempotency.remember(tx, fork.project, idempotencyKey, digested, fork.id);
        return releases;
      });
      holds.set(fork.id, held);
      return recorded;
    },

    make(fork, principal, parent) {
      const made = makeHeld(fork, principal, parent);
      underWay.set(fork.id, made);
      return made;
    },

    settled: async (id) => await underWay.get(id)?.catch(() => {}),

    async undo(fork) {
      const remove = (id: SandboxRow['id']) =>
        operations.enqueue(id, async () => {
          const row = await sandboxes.get(id);
          if (row) await destroyer.destroy(row, undefined, 'fork failed').catch(onError);
        });
      await Promise.all(fork.children.map(remove));
      await records.transaction(async (tx) => {
        await tx.forks.delete(fork.id);
        await tx.idempotency.forget(fork.id);
      });
      await forkChildren.restoreBase(fork);
      const parent = (await snapshots.get(fork.snapshot))?.sandbox;
      await registry.dropAbandoned(parent === undefined ? undefined : await sandboxes.get(parent));
    },

    restoreBase: ({ snapshot }) =>
      records.transaction(async (tx) => {
        const captured = await tx.snapshots.get(snapshot);
        if (captured?.cause !== 'fork') return;
        const { sandbox, parent } = captured;
        const based = await tx.sandboxes.basedOn(snapshot);
        if (based.length !== 1 || based[0]!.id !== sandbox) return;
        await tx.sandboxes.update(sandbox, { base: parent });
      }),
  };
  return forkChildren;
}

/** What a child has from its parent. */
const INHERITED = [
  'project',
  'backend',
  'spec',
  'ports',
  'timeoutMs',
  'onTimeout',
  'idle',
  'retention',
  'onBoot',
  'network',
  'networks',
  'templateNetwork',
] as const satisfies readonly (keyof SandboxRow)[];

/** Throws `invalid_argument` if the prefix makes no valid name. */
export function childName(prefix: string, index: number): string {
  const name = SandboxNameSchema.safeParse(`${prefix}-${index}`);
  if (name.success) return name.data;
  throw new CayError(
    'invalid_argument',
    `Invalid "namePrefix": "${prefix}-${index}" is not a sandbox name: ${name.error.issues[0]?.message}`,
  );
}
