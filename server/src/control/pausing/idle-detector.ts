/**
 * Tells which sandboxes nobody uses: nobody is inside, no lease holds it, it takes no processor time worth
 * the name, and no command runs that somebody asked for. For the idle policy, and for whoever has to make
 * room.
 */
import type { SandboxId } from '@cay/sdk/protocol';
import { MAIN_COMMAND_ID } from '../../backends/support/start-main.ts';
import { USES } from '../sandboxes/activity.ts';
import type { Context } from '../context.ts';
import type { SandboxRow } from '../../records/sandboxes.ts';

/** What was read of a sandbox's processor time the last time that it was looked at. */
export interface Watch {
  reading?: { atMs: number; cpuMs: number; incarnation: number };
}

export interface IdleDetector {
  /** For how long, by what has passed and not by what the time of day says. */
  unusedMs(row: SandboxRow): number;
  /** Whether somebody is inside or it computes; undefined if there was no earlier reading to compare with. */
  busy(row: SandboxRow, watch: Watch): Promise<boolean | undefined>;
  /** Whether commands run, its own apart. */
  runsCommands(id: SandboxId): Promise<boolean>;
  /**
   * In line, with its gate closed: does this unless somebody has come, or something has happened to it, since
   * the row was read.
   */
  ifStill(row: SandboxRow, task: (current: SandboxRow) => Promise<void>): Promise<void>;
}

/** Of one core. gVisor's own threads take about 4 % of one while nothing runs inside. */
const IDLE_SHARE = 0.05;
const IDLE_SHARE_OF: Record<string, number> = { runsc: 0.1 };
/** One that does not answer must not keep all others from being looked at. */
const ANSWER_MS = 10_000;
/** Two readings nearer to each other than this tell nothing. */
const SHORTEST_READING_MS = 5;

export function openIdleDetector({ activity, backend, clock, operations, sandboxes }: Context): IdleDetector {
  async function computing(row: SandboxRow, watch: Watch): Promise<boolean | undefined> {
    const { atMs, cpuUsageMs } = await backend.stats(row.id, { signal: AbortSignal.timeout(ANSWER_MS) });
    const before = watch.reading;
    const comparable = before?.incarnation === row.incarnation;
    const elapsedMs = before && comparable ? atMs - before.atMs : 0;
    if (elapsedMs >= 0 && before && comparable && elapsedMs < SHORTEST_READING_MS) return undefined;
    watch.reading = { atMs, cpuMs: cpuUsageMs, incarnation: row.incarnation };
    // A clock that was set back leaves nothing to divide by.
    if (!before || !comparable || elapsedMs <= 0) return undefined;
    return (cpuUsageMs - before.cpuMs) / elapsedMs >= (IDLE_SHARE_OF[row.runtime ?? ''] ?? IDLE_SHARE);
  }

  return {
    unusedMs({ id, usedAtMs, startedAtMs, createdAtMs, leaseUntilMs }) {
      const recorded = usedAtMs ?? startedAtMs ?? createdAtMs;
      const seen = activity.steadyUsedAtMs(id);
      // What was recorded by an earlier server is as old as that says, unless the clock was set forward
      // since.
      const since = seen === undefined ? clock.ageing() - recorded : clock.steady() - seen;
      const leased = activity.steadyLeaseUntilMs(id) ?? leaseUntilMs;
      return Math.max(0, leased === null ? since : Math.min(since, clock.steady() - leased));
    },

    busy: async (row, watch) => (activity.count(row.id, ...USES) > 0 ? true : computing(row, watch)),

    async runsCommands(id) {
      const call = { signal: AbortSignal.timeout(ANSWER_MS) };
      const guest = await backend.connect(id, call);
      return (await guest.commands(call)).some(
        (command) => command.end === undefined && command.id !== MAIN_COMMAND_ID,
      );
    },

    ifStill: (row, task) =>
      activity.closed(row.id, () =>
        operations.run(row.id, async () => {
          const current = sandboxes.get(row.id);
          const same =
            current?.state === row.state &&
            current.pausedAs === row.pausedAs &&
            current.incarnation === row.incarnation;
          if (same && activity.count(row.id, ...USES) === 0) await task(current);
        }),
      ),
  };
}
