/**
 * Decides whether a sandbox is unused: no call is inside, no lease holds it, it takes almost no processor
 * time, and no command that a client started is running. For the idle policy, and for making room.
 */
import type { SandboxId } from '@cay/sdk/protocol';
import { MAIN_COMMAND_ID } from '../../backends/support/start-main.ts';
import type { SandboxRow } from '../../records/tables/sandbox-row.ts';
import type { Core } from '../core.ts';
import { USES } from '../sandboxes/activity.ts';

/** The processor time of a sandbox when it was last checked. */
export interface CpuWatch {
  reading?: { atMs: number; cpuMs: number; incarnation: number };
}

export interface IdleDetector {
  /** How long it has been unused, by elapsed time and not by the time of day. */
  unusedMs(row: SandboxRow): number;
  /** Whether a call is inside or it computes. Undefined if there is no earlier reading to compare with. */
  isBusy(row: SandboxRow, watch: CpuWatch): Promise<boolean | undefined>;
  /** Whether commands run, apart from the one it was created with. */
  runsCommands(id: SandboxId): Promise<boolean>;
  /**
   * Runs the task in the sandbox's queue with its gate closed, unless a call has come or the sandbox has
   * changed since the row was read.
   */
  runIfUnused(row: SandboxRow, task: (current: SandboxRow) => Promise<void>): Promise<void>;
}

/** Of one core. gVisor's own threads take about 4 % of one while nothing runs inside. */
const IDLE_SHARE = 0.05;
const IDLE_SHARE_OF: Record<string, number> = { runsc: 0.1 };
/** A sandbox that does not answer must not keep the others from being checked. */
const ANSWER_MS = 10_000;
/** Two readings closer than this cannot be compared. */
const SHORTEST_READING_MS = 5;

export function openIdleDetector({
  activity,
  backend,
  clock,
  operations,
  records: { sandboxes },
}: Pick<Core, 'activity' | 'backend' | 'clock' | 'operations' | 'records'>): IdleDetector {
  async function isComputing(row: SandboxRow, watch: CpuWatch): Promise<boolean | undefined> {
    const { atMs, cpuUsageMs } = await backend.stats(row.id, { signal: AbortSignal.timeout(ANSWER_MS) });
    const before = watch.reading?.incarnation === row.incarnation ? watch.reading : undefined;
    const elapsedMs = before ? atMs - before.atMs : 0;
    if (before && elapsedMs >= 0 && elapsedMs < SHORTEST_READING_MS) return undefined;
    watch.reading = { atMs, cpuMs: cpuUsageMs, incarnation: row.incarnation };
    // After the clock was set back there is no time to divide by.
    if (!before || elapsedMs <= 0) return undefined;
    return (cpuUsageMs - before.cpuMs) / elapsedMs >= (IDLE_SHARE_OF[row.runtime ?? ''] ?? IDLE_SHARE);
  }

  return {
    unusedMs({ id, usedAtMs, startedAtMs, createdAtMs, leaseUntilMs }) {
      const recorded = usedAtMs ?? startedAtMs ?? createdAtMs;
      const seen = activity.steadyUsedAtMs(id);
      // A time that an earlier server recorded is taken as it is, unless the clock was set forward since.
      const sinceMs = seen === undefined ? clock.ageing() - recorded : clock.steady() - seen;
      const leased = activity.steadyLeaseUntilMs(id) ?? leaseUntilMs;
      return Math.max(0, leased === null ? sinceMs : Math.min(sinceMs, clock.steady() - leased));
    },

    isBusy: async (row, watch) => (activity.count(row.id, ...USES) > 0 ? true : isComputing(row, watch)),

    async runsCommands(id) {
      const call = { signal: AbortSignal.timeout(ANSWER_MS) };
      const guest = await backend.connect(id, call);
      return (await guest.commands(call)).some(
        (command) => command.end === undefined && command.id !== MAIN_COMMAND_ID,
      );
    },

    runIfUnused: (row, task) =>
      activity.withGateClosed(row.id, () =>
        operations.enqueue(row.id, async () => {
          const current = await sandboxes.get(row.id);
          const isSame =
            current?.state === row.state &&
            current.pausedAs === row.pausedAs &&
            current.incarnation === row.incarnation;
          // Calls that are inside are counted last: the gate is closed, so none comes after.
          if (isSame && activity.count(row.id, ...USES) === 0) await task(current);
        }),
      ),
  };
}
