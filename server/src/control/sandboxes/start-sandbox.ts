import { isDeepStrictEqual } from 'node:util';
import type { SandboxSpec } from '@cay/sdk/protocol';
import { loweredLimits } from '../../policy/bound-limits.ts';
import type { SandboxRow } from '../../records/tables/sandbox-row.ts';
import type { Syncing } from '../buckets/syncing.ts';
import type { Core } from '../core.ts';
import { isLeaseLost } from './operations.ts';
import { scopeOf } from './scope-of.ts';
import type { OnRecord, StateRecorder } from './record-state.ts';

export interface SandboxStarter {
  /**
   * Makes a recorded sandbox run, and records that it does. It may have been running, paused or stopped. Call
   * this from the sandbox's queue.
   */
  start(row: SandboxRow, onRecord?: OnRecord): Promise<SandboxRow>;
  /**
   * The spec for the next processes. The operator may have lowered the maximum of a limit since the sandbox
   * was made; processes that continue keep their limits.
   */
  specFor(row: SandboxRow): Promise<SandboxSpec>;
}

export function openStarter({
  backend,
  capabilitiesOf,
  networks,
  policy,
  recordEvent,
  onError,
  state,
  syncing,
}: Pick<Core, 'backend' | 'capabilitiesOf' | 'networks' | 'policy' | 'recordEvent' | 'onError'> & {
  state: StateRecorder;
  syncing: Pick<Syncing, 'down'>;
}): SandboxStarter {
  async function specFor({ spec, state, pausedAs, origin }: SandboxRow): Promise<SandboxSpec> {
    const hasProcesses = state === 'paused' && pausedAs !== 'archived' && pausedAs !== 'suspended';
    if (state === 'active' || hasProcesses || origin?.memory) return spec;
    const { abilities } = await capabilitiesOf(spec.platform);
    const limits = loweredLimits(policy, spec.limits, abilities);
    return isDeepStrictEqual(limits, spec.limits) ? spec : { ...spec, limits };
  }

  return {
    specFor,
    async start(row, onRecord) {
      const spec = await specFor(row);
      // Another server may have made it, or changed its policy.
      await networks.apply(row.id);
      const observed = await backend.ensure(row.id, spec, scopeOf(row));
      try {
        // Before anything of the caller's runs in it.
        if (row.state !== 'active' && row.state !== 'paused') await syncing.down(row);
        if (spec === row.spec) return await state.running(row, observed, onRecord);
        const onLowered: OnRecord = async (active, tx) => {
          await onRecord?.(active, tx);
          const data = { fields: ['limits'], cause: 'policy' };
          await recordEvent(tx, 'sandbox.updated', active, undefined, data);
        };
        return await state.running(row, observed, onLowered, { spec });
      } catch (error) {
        // A sandbox that is recorded as stopped must not run: no timeout would ever end it.
        if ((row.state === 'stopped' || row.state === 'failed') && !isLeaseLost(error))
          await backend.stop(row.id, { graceMs: 0 }).catch(onError);
        throw error;
      }
    },
  };
}
