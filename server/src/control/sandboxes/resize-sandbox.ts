/**
 * Changes the limits of a sandbox that runs. The intent is recorded first: a server that finds it after a
 * crash does it again, which comes to the same, or leaves the limits as they are recorded if that is refused
 * by then.
 */
import { CayError, isCayError, type SandboxId, type UpdateSandbox } from '@cay/sdk/protocol';
import type { Observation, Resizing as CanResize } from '../../backends/backend.ts';
import { faultPoint } from '../../lib/fault-point.ts';
import { requireLimits } from '../../policy/bound-limits.ts';
import type { Context } from '../context.ts';
import type { Summed } from '../tenants/quota.ts';
import type { ResizeOperation, SandboxRow } from '../../records/sandboxes.ts';
import { retryOnDiskFull } from '../capacity/retry-on-disk-full.ts';

type Limits = NonNullable<UpdateSandbox['limits']>;

export interface Resizing {
  /**
   * In line: has the backend change the limits, and then `record` write down what they are and that nothing
   * is under way. When it rejects they are what they were.
   */
  resize(
    row: SandboxRow,
    limits: Limits,
    record: (changes: Pick<SandboxRow, 'spec' | 'operation'>) => SandboxRow,
  ): Promise<SandboxRow>;
  /** In line: finishes what was recorded and cut short. */
  finish(row: SandboxRow, operation: ResizeOperation, observed: Observation): Promise<void>;
}

export function openResizing(context: Context): Resizing {
  const { database, operations, lifecycle, note, onError, policy, quota, sandboxes } = context;

  const resized = (row: SandboxRow, limits: Limits) => ({
    spec: { ...row.spec, limits: { ...row.spec.limits, ...limits } },
    operation: null,
  });

  function resizing(): CanResize {
    const { backend } = context;
    const found = backend.ability('resize');
    if (!found) throw new CayError('unsupported', `The ${backend.name} backend cannot change limits`);
    return found;
  }

  /** Those of the limits that would change, as they are. */
  function before({ spec }: SandboxRow, limits: Limits): Limits {
    return Object.fromEntries(Object.keys(limits).map((key) => [key, spec.limits[key as keyof Limits]]));
  }

  /**
   * Nothing comes of it. On a full disk that is noted as soon as there is room: the next server would do it.
   */
  function forget(id: SandboxId): void {
    try {
      if (sandboxes.get(id)?.operation?.kind === 'resize') sandboxes.update(id, { operation: null });
    } catch (error) {
      onError(error);
      if (isCayError(error, 'resource_exhausted'))
        retryOnDiskFull(() => operations.run(id, async () => forget(id)).catch(onError));
    }
  }

  return {
    async resize(row, limits, record) {
      if (row.state !== 'active')
        throw new CayError(
          'failed_precondition',
          `Sandbox "${row.id}" is ${row.state}; limits change while it is active`,
        );
      const backend = resizing();
      const own = row.spec.limits;
      requireLimits(policy, limits, (await context.capabilitiesOf(row.spec.platform)).abilities);
      quota.require(row.project, { sandboxes: 0, limits: { ...own, ...limits } }, own);
      const more = (key: keyof Summed) => Math.max(0, (limits[key] ?? own[key] ?? 0) - (own[key] ?? 0));
      const added = {
        cpus: more('cpus'),
        memoryBytes: more('memoryBytes'),
        diskBytes: more('diskBytes'),
        pids: more('pids'),
      };
      return quota.reserving(row, added, async () => {
        sandboxes.update(row.id, { operation: { kind: 'resize', limits } });
        let done = false;
        try {
          await faultPoint('control.resize.recorded');
          await backend.resize(row.id, limits);
          done = true;
          await faultPoint('control.resize.done');
          return record(resized(row, limits));
        } catch (error) {
          // What cannot be recorded has not happened.
          if (done) await backend.resize(row.id, before(row, limits)).catch(onError);
          forget(row.id);
          throw error;
        }
      });
    },

    async finish(row, { limits }, observed) {
      // One that does not run gets the limits of its record when it starts.
      if (row.state === 'active' && observed.phase === 'ready' && !observed.frozen) {
        try {
          const backend = resizing();
          await backend.resize(row.id, limits).catch(async (error: unknown) => {
            await backend.resize(row.id, before(row, limits)).catch(onError);
            throw error;
          });
          database.transaction(() => {
            const updated = sandboxes.update(row.id, resized(row, limits));
            note('sandbox.updated', updated, undefined, { fields: ['limits'], cause: 'recovery' });
          });
        } catch (error) {
          onError(error);
        }
      }
      forget(row.id);
      lifecycle.settle(context.again(row), observed);
    },
  };
}
