/**
 * Changes the limits of an active sandbox. The intent is recorded first: a server that finds it after a crash
 * applies it again, or keeps the recorded limits if the backend refuses.
 */
import { CayError, isCayError, type SandboxId, type UpdateSandbox } from '@cay/sdk/protocol';
import type { Observation, Resizing as CanResize } from '../../backends/backend.ts';
import { faultPoint } from '../../lib/fault-point.ts';
import { requireLimits } from '../../policy/bound-limits.ts';
import type { Core } from '../core.ts';
import type { Settler } from '../recovery/settle-sandbox.ts';
import type { Summed } from '../tenants/quota.ts';
import type { RecordSet } from '../../records/records.ts';
import type { ResizeOperation, SandboxRow } from '../../records/tables/sandbox-row.ts';
import { retryOnDiskFull } from '../capacity/retry-on-disk-full.ts';
import { isLeaseLost } from './operations.ts';
import { stateWords } from './not-running.ts';

type Limits = NonNullable<UpdateSandbox['limits']>;

/** Call these from the sandbox's queue. */
export interface Resizing {
  /**
   * Has the backend change the limits, then calls `record` to write them and to delete the intent. When it
   * rejects, the limits are what they were.
   */
  resize(
    row: SandboxRow,
    limits: Limits,
    record: (changes: Pick<SandboxRow, 'spec' | 'operation'>) => Promise<SandboxRow>,
  ): Promise<SandboxRow>;
  /** Finishes a resize that an earlier server recorded. */
  finish(row: SandboxRow, operation: ResizeOperation, observed: Observation): Promise<void>;
}

export function openResizing({
  backend,
  capabilitiesOf,
  lookup,
  onError,
  operations,
  policy,
  quota,
  recordEvent,
  records,
  settler,
}: Pick<
  Core,
  | 'backend'
  | 'capabilitiesOf'
  | 'lookup'
  | 'onError'
  | 'operations'
  | 'policy'
  | 'quota'
  | 'recordEvent'
  | 'records'
> & { settler: Settler }): Resizing {
  const resized = (row: SandboxRow, limits: Limits) => ({
    spec: { ...row.spec, limits: { ...row.spec.limits, ...limits } },
    operation: null,
  });

  function requireResize(): CanResize {
    const resizing = backend.ability('resize');
    if (resizing) return resizing;
    throw new CayError('unsupported', `The ${backend.name} backend cannot change limits`);
  }

  /** The present values of the limits that would change. */
  function before({ spec }: SandboxRow, limits: Limits): Limits {
    return Object.fromEntries(Object.keys(limits).map((key) => [key, spec.limits[key as keyof Limits]]));
  }

  const deleteIntent = (id: SandboxId, on: RecordSet = records) =>
    on.transaction(async (tx) => {
      if ((await tx.sandboxes.get(id))?.operation?.kind === 'resize')
        await tx.sandboxes.update(id, { operation: null });
    });

  /**
   * Deletes the intent, which the next server would apply. A retry runs in the queue, so that it cannot
   * delete the intent of a later resize.
   */
  async function giveUp(id: SandboxId): Promise<void> {
    try {
      await deleteIntent(id);
    } catch (error) {
      onError(error);
      const again = () => operations.enqueue(id, () => deleteIntent(id));
      if (isCayError(error, 'resource_exhausted')) await retryOnDiskFull(again, onError, { later: true });
    }
  }

  return {
    async resize(row, limits, record) {
      if (row.state !== 'active')
        throw new CayError(
          'failed_precondition',
          `Cannot change the limits of sandbox "${row.id}": it ${stateWords(row.state)}`,
          { details: { state: row.state }, hint: 'start it first' },
        );
      const resizing = requireResize();
      const own = row.spec.limits;
      requireLimits(policy, limits, (await capabilitiesOf(row.spec.platform)).abilities);
      const more = (key: keyof Summed) => Math.max(0, (limits[key] ?? own[key] ?? 0) - (own[key] ?? 0));
      const added = {
        cpus: more('cpus'),
        memoryBytes: more('memoryBytes'),
        diskBytes: more('diskBytes'),
        pids: more('pids'),
      };
      const change = { added, limits: { ...own, ...limits }, replaced: own };
      return quota.reserving(row.project, change, async () => {
        await records.sandboxes.update(row.id, { operation: { kind: 'resize', limits } });
        let done = false;
        try {
          await faultPoint('control.resize.recorded');
          await resizing.resize(row.id, limits);
          done = true;
          await faultPoint('control.resize.done');
          return await record(resized(row, limits));
        } catch (error) {
          // A change that cannot be recorded is undone.
          if (done && !isLeaseLost(error)) await resizing.resize(row.id, before(row, limits)).catch(onError);
          await giveUp(row.id);
          throw error;
        }
      });
    },

    async finish(row, { limits }, observed) {
      // A sandbox that does not run gets the limits of its record when it starts.
      if (row.state === 'active' && observed.phase === 'ready' && !observed.frozen) {
        try {
          const resizing = requireResize();
          await resizing.resize(row.id, limits).catch(async (error: unknown) => {
            await resizing.resize(row.id, before(row, limits)).catch(onError);
            throw error;
          });
          await records.transaction(async (tx) => {
            const updated = await tx.sandboxes.update(row.id, resized(row, limits));
            const data = { fields: ['limits'], cause: 'recovery' };
            await recordEvent(tx, 'sandbox.updated', updated, undefined, data);
          });
        } catch (error) {
          onError(error);
        }
      }
      await giveUp(row.id);
      await settler.settle(await lookup.reload(row), observed);
    },
  };
}
