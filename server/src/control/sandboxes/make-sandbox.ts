import { setTimeout as sleep } from 'node:timers/promises';
import { CayError, isCayError, type SandboxId } from '@cay/sdk/protocol';
import { faultPoint } from '../../lib/fault-point.ts';
import type { Origin, SandboxRow } from '../../records/tables/sandbox-row.ts';
import { retryOnDiskFull } from '../capacity/retry-on-disk-full.ts';
import type { Core } from '../core.ts';
import type { Principal } from '../tenants/principal.ts';
import { isLeaseLost } from './operations.ts';
import { scopeOf } from './scope-of.ts';
import type { OnRecord, StateRecorder } from './record-state.ts';
import type { SandboxStarter } from './start-sandbox.ts';

export interface SandboxMaker {
  /** Makes the sandbox of a row in state `creating`. If that fails, the row is deleted. Enqueues itself. */
  make(row: SandboxRow, principal: Principal | undefined): Promise<SandboxRow>;
  /** The result of a `make` of this server that is under way. */
  making(id: SandboxId): Promise<SandboxRow> | undefined;
  /**
   * The row of a sandbox that was `creating`, once it is made, by this server or another one. Resolves it as
   * it is if no server makes it for a while. Rejects as the making does, or `not_found`.
   */
  made(row: Pick<SandboxRow, 'id'>): Promise<SandboxRow>;
  /** Resolves when every `make` under way has settled. */
  settled(): Promise<void>;
}

/** For so long a row in state `creating` is polled that another server makes. */
const MADE_ELSEWHERE_MS = 5_000;
const FIRST_LOOK_MS = 1;
const LONGEST_LOOK_MS = 250;

export function openMaker({
  backend,
  lookup,
  networks,
  operations,
  records,
  recordEvent,
  onError,
  starter,
  state,
}: Pick<Core, 'backend' | 'lookup' | 'networks' | 'operations' | 'records' | 'recordEvent' | 'onError'> & {
  starter: SandboxStarter;
  state: StateRecorder;
}): SandboxMaker {
  const underWay = new Map<string, Promise<SandboxRow>>();

  /** Makes it from a snapshot, unless an earlier attempt did. */
  async function cloneFrom(
    { snapshot, memory, start }: Origin,
    row: SandboxRow,
    onRecord: OnRecord,
  ): Promise<SandboxRow> {
    const snapshots = backend.ability('snapshots');
    if (!snapshots)
      throw new CayError('unsupported', `The ${backend.name} backend cannot create sandboxes from snapshots`);
    const before = await backend.observe(row.id);
    const spec = start ? await starter.specFor(row) : row.spec;
    const observed =
      before.phase === 'absent'
        ? await snapshots.clone(row.id, spec, snapshot, { memory, start, ...scopeOf(row) })
        : before;
    await faultPoint('control.clone.done');
    if (start) return starter.start(row, onRecord);
    return state.stopped(row, { incarnation: observed.incarnation, origin: null }, onRecord);
  }

  /** Deletes the row of a sandbox that could not be made: the next server would make it again. */
  async function unmake(id: SandboxId): Promise<void> {
    await backend.remove(id).catch(onError);
    await records.transaction(async (tx) => {
      await tx.sandboxes.delete(id);
      await tx.idempotency.forget(id);
    });
    networks.forget(id);
  }

  async function makeInQueue(given: SandboxRow, principal: Principal | undefined): Promise<SandboxRow> {
    const onRecord: OnRecord = (changed, tx) =>
      recordEvent(tx, 'sandbox.created', changed, principal, {
        template: given.spec.template,
        runtime: changed.runtime,
      });
    try {
      // Another call, or another server, may have made it while this one waited.
      const row = await lookup.reload(given);
      if (row.state !== 'creating') return row;
      // Before anything in it can connect.
      await networks.apply(row.id);
      return row.origin ? await cloneFrom(row.origin, row, onRecord) : await starter.start(row, onRecord);
    } catch (error) {
      if (isLeaseLost(error)) throw error;
      await unmake(given.id).catch(async (failure: unknown) => {
        onError(failure);
        const again = () => operations.enqueue(given.id, () => unmake(given.id));
        if (isCayError(failure, 'resource_exhausted')) await retryOnDiskFull(again, onError, { later: true });
      });
      throw error;
    }
  }

  return {
    make(row, principal) {
      const made = operations
        .enqueue(row.id, () => makeInQueue(row, principal), 'create')
        .finally(() => {
          if (underWay.get(row.id) === made) underWay.delete(row.id);
        });
      underWay.set(row.id, made);
      return made;
    },
    making: (id) => underWay.get(id),
    async made({ id }) {
      const until = performance.now() + MADE_ELSEWHERE_MS;
      for (let waitMs = FIRST_LOOK_MS; ; waitMs = Math.min(2 * waitMs, LONGEST_LOOK_MS)) {
        const own = underWay.get(id);
        if (own) return own;
        const row = await lookup.reload({ id });
        if (row.state !== 'creating' || performance.now() > until) return row;
        await sleep(waitMs);
      }
    },
    async settled() {
      await Promise.allSettled(underWay.values());
    },
  };
}
