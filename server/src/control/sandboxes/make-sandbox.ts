import { CayError, isCayError, type SandboxId } from '@cay/sdk/protocol';
import { faultPoint } from '../../lib/fault-point.ts';
import type { Origin, SandboxRow } from '../../records/sandboxes.ts';
import { retryOnDiskFull } from '../capacity/retry-on-disk-full.ts';
import type { Core } from '../core.ts';
import type { Principal } from '../tenants/principal.ts';
import { scopeOf } from './scope-of.ts';
import type { OnRecord, StateRecorder } from './record-state.ts';
import type { SandboxStarter } from './start-sandbox.ts';

export interface SandboxMaker {
  /** Makes the sandbox of a row in state `creating`. If that fails, the row is deleted. Enqueues itself. */
  make(row: SandboxRow, principal: Principal | undefined): Promise<SandboxRow>;
  /** The result of a `make` that is under way. */
  making(id: SandboxId): Promise<SandboxRow> | undefined;
  /** Resolves when every `make` under way has settled. */
  settled(): Promise<void>;
}

export function openMaker({
  backend,
  operations,
  records: { database, sandboxes, idempotency },
  recordEvent,
  onError,
  starter,
  state,
}: Pick<Core, 'backend' | 'operations' | 'records' | 'recordEvent' | 'onError'> & {
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
    database.transaction(() => {
      sandboxes.delete(id);
      idempotency.forget(id);
    });
  }

  return {
    make(row, principal) {
      const made = operations.enqueue(row.id, async () => {
        try {
          const onRecord: OnRecord = (changed) =>
            recordEvent('sandbox.created', changed, principal, {
              template: row.spec.template,
              runtime: changed.runtime,
            });
          return row.origin ? await cloneFrom(row.origin, row, onRecord) : await starter.start(row, onRecord);
        } catch (error) {
          await unmake(row.id).catch(async (failure: unknown) => {
            onError(failure);
            const again = () => operations.enqueue(row.id, () => unmake(row.id));
            if (isCayError(failure, 'resource_exhausted'))
              await retryOnDiskFull(again, onError, { later: true });
          });
          throw error;
        } finally {
          underWay.delete(row.id);
        }
      });
      underWay.set(row.id, made);
      return made;
    },
    making: (id) => underWay.get(id),
    async settled() {
      await Promise.allSettled(underWay.values());
    },
  };
}
