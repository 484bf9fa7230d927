/** The verbs of `pause.ts`, and pauses that a timeout, the idle policy or memory pressure asks for. */
import { PAUSES, PauseSandboxSchema, isCayError, type Pause, type SandboxId } from '@cay/sdk/protocol';
import { faultPoint } from '../../lib/fault-point.ts';
import type { SandboxRow } from '../../records/tables/sandbox-row.ts';
import type { Core } from '../core.ts';
import { notRunning } from '../sandboxes/not-running.ts';
import type { OnRecord } from '../sandboxes/record-state.ts';
import type { Principal } from '../tenants/principal.ts';
import { unsupportedLevel, type PauseLevels } from './pause-levels.ts';
import type { PauseVerbs } from './pause.ts';
import type { Waker } from './wake.ts';

export interface Pausing extends PauseVerbs {
  /**
   * Pauses at the first of these levels that is possible. A sandbox that is at one of them or deeper stays as
   * it is. Rejects `unsupported` if none is possible. Its timeout stands still, unless `keepsTimeout`.
   *
   * Call this from the sandbox's queue, with its gate closed.
   */
  pauseAt(
    row: SandboxRow,
    levels: readonly Pause[],
    why: { principal?: Principal; cause: string; keepsTimeout?: boolean },
  ): Promise<SandboxRow>;
  /** Pauses as `onTimeout` says, in the sandbox's queue. Resolves false if no level is possible. */
  pauseOnTimeout(row: SandboxRow): Promise<boolean>;
}

/** How long calls that are inside have to return. */
const CALLS_MS = 2_000;

/** Where the caller names no level: processes are kept if they can be. */
const DEFAULT_LEVELS: Pause[] = ['hibernated', 'frozen', 'suspended'];

const depth = (pause: Pause | null) => (pause === null ? -1 : PAUSES.indexOf(pause));

export function openPausing({
  activity,
  clock,
  lookup,
  operations,
  recordEvent,
  records,
  levels: pauseLevels,
  waker,
}: Pick<Core, 'activity' | 'clock' | 'lookup' | 'operations' | 'recordEvent' | 'records'> & {
  levels: PauseLevels;
  waker: Waker;
}): Pausing {
  async function pauseInQueue(id: SandboxId, as: Pause | undefined, principal: Principal) {
    const row = await lookup.reload({ id });
    await faultPoint('control.pause.begun');
    return pausing.pauseAt(row, as === undefined ? DEFAULT_LEVELS : [as], { principal, cause: 'request' });
  }

  const pausing: Pausing = {
    async pauseAt(row, levels, { principal, cause, keepsTimeout }) {
      if (row.state !== 'active' && row.state !== 'paused') throw notRunning(row);
      const deeper = levels.filter((level) => depth(level) > depth(row.pausedAs));
      const isDeepEnough = deeper.length < levels.length;
      if (isDeepEnough && deeper.length === 0) return row;
      const onRecord: OnRecord = (changed, tx) =>
        recordEvent(tx, 'sandbox.paused', changed, principal, { as: changed.pausedAs, cause });
      const ignoresQuota = cause === 'pressure';
      const paused = await pauseLevels.firstPossible(row, deeper, { keepsTimeout, onRecord, ignoresQuota });
      if (paused.pausedAs !== row.pausedAs) return paused;
      if (row.state === 'paused' && isDeepEnough) return row;
      throw unsupportedLevel(row, levels[0]!);
    },

    pauseOnTimeout: (row) =>
      activity.withGateClosed(row.id, async () => {
        await activity.waitUntilNone(row.id, ['call'], CALLS_MS);
        const levels: Pause[] =
          row.onTimeout === 'archive' ? ['archived', ...DEFAULT_LEVELS] : DEFAULT_LEVELS;
        try {
          const paused = await pausing.pauseAt(row, levels, { cause: 'timeout' });
          // A sandbox that was paused before has had its time.
          if (paused.expiresAtMs !== null) await records.sandboxes.update(row.id, { expiresAtMs: null });
          return true;
        } catch (error) {
          if (!isCayError(error, 'unsupported')) throw error;
          return false;
        }
      }),

    async pause(principal, ref, request) {
      const { as, waitMs } = PauseSandboxSchema.parse(request);
      const { id } = await lookup.find(principal, ref);
      return operations.claim(id, 'pause', (signal) =>
        activity.withGateClosed(id, async () => {
          await activity.waitUntilNone(id, ['command'], waitMs, signal);
          await activity.waitUntilNone(id, ['call'], CALLS_MS);
          return lookup.show(await operations.enqueue(id, () => pauseInQueue(id, as, principal)));
        }),
      );
    },

    async resume(principal, ref) {
      const found = await lookup.find(principal, ref);
      if (found.state === 'stopped' || found.state === 'failed') throw notRunning(found);
      await activity.gateOpen(found.id);
      const row = await waker.wake(found.id, principal);
      if (row.state !== 'active') throw notRunning(row);
      return lookup.show(row);
    },

    async lease(principal, ref, { forMs }) {
      const row = await lookup.find(principal, ref);
      activity.touch(row.id);
      activity.lease(row.id, forMs);
      const leaseUntilMs = forMs === 0 ? null : clock.now() + forMs;
      const leased = await records.transaction(async (tx) => {
        const updated = await tx.sandboxes.update(row.id, { leaseUntilMs });
        await recordEvent(tx, 'sandbox.leased', updated, principal, { forMs });
        return updated;
      });
      return lookup.show(leased);
    },
  };
  return pausing;
}
