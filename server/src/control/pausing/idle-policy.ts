/**
 * Takes sandboxes down the ladder when nobody uses them.
 *
 * Only those with a policy are looked at, every few seconds: whether somebody is inside, whether a lease
 * holds it, and how much processor time it took since the last look. Whether commands run that nobody waits
 * for is asked of the guest, and only when it would be paused otherwise. What counts is the time that has
 * passed: a clock that is set, or a machine that was suspended, makes nothing idle. While no server runs it
 * goes on by the record's time.
 */
import { PAUSES, isCayError, type IdlePolicy, type Pause, type SandboxId } from '@cay/sdk/protocol';
import type { Context } from '../context.ts';
import type { Pausing } from './pausing.ts';
import type { SandboxRow } from '../../records/sandboxes.ts';
import type { IdleDetector, Watch } from './idle-detector.ts';
import { pauseFallbacks } from './pause-fallbacks.ts';
import { inBackground } from '../../lib/in-background.ts';

export interface Idling {
  /** Some sandbox's policy has changed. */
  changed(): void;
  close(): void;
}

export type Rung = Pause | 'destroyed';

/** Counted from when it was last used. */
const AFTER = {
  destroyed: 'destroyAfterMs',
  archived: 'archiveAfterMs',
  hibernated: 'hibernateAfterMs',
  suspended: 'suspendAfterMs',
  frozen: 'freezeAfterMs',
} as const satisfies Record<Rung, keyof IdlePolicy>;
const DEEPEST_FIRST = Object.keys(AFTER) as Rung[];

const LOOK_EVERY_MS = 2_000;
const AGAIN_MS = 60_000;
const AGAIN_AT_MOST_MS = 3_600_000;
/** The deepest rung that is due below where the sandbox is. */
export function dueRung(policy: IdlePolicy, idleMs: number, at: Pause | null): Rung | undefined {
  const below = (rung: Rung) =>
    rung === 'destroyed' || PAUSES.indexOf(rung) > (at === null ? -1 : PAUSES.indexOf(at));
  return DEEPEST_FIRST.find((rung) => {
    const afterMs = policy[AFTER[rung]];
    return afterMs !== null && idleMs >= afterMs && below(rung);
  });
}

interface Watched extends Watch {
  /** Rungs that could not be reached, and when to try again. */
  refused: Map<Rung, { untilMs: number; times: number }>;
}

export function openIdling(
  context: Context,
  pausing: Pausing,
  idleDetector: IdleDetector,
  { lookEveryMs = LOOK_EVERY_MS }: { lookEveryMs?: number } = {},
): Idling {
  const { activity, clock, lifecycle, onError, sandboxes } = context;
  const watched = new Map<SandboxId, Watched>();
  const descending = new Set<SandboxId>();
  let timer: NodeJS.Timeout | undefined;
  let closed = false;

  async function look(row: SandboxRow): Promise<void> {
    if (descending.has(row.id)) return;
    if (row.idle === null || (row.state !== 'active' && row.state !== 'paused'))
      return void watched.delete(row.id);
    let watch = watched.get(row.id);
    if (!watch) watched.set(row.id, (watch = { refused: new Map() }));
    if (row.state === 'active') {
      const busy = await idleDetector.busy(row, watch);
      if (busy) return activity.touch(row.id);
      if (busy === undefined) return;
    }
    const rung = allowed(row, watch);
    if (rung === undefined) return;
    if (row.state === 'active' && (await idleDetector.runsCommands(row.id))) return activity.touch(row.id);
    // Copying an archive out takes its time, and the others are looked at meanwhile.
    descending.add(row.id);
    inBackground(
      descend(row, rung, watch).finally(() => descending.delete(row.id)),
      onError,
    );
  }

  /** The deepest rung that is due and was not refused of late. */
  function allowed(row: SandboxRow, { refused }: Watched): Rung | undefined {
    const policy = { ...row.idle! };
    for (const [rung, { untilMs }] of refused) if (untilMs > clock.steady()) policy[AFTER[rung]] = null;
    return dueRung(policy, idleDetector.unusedMs(row), row.pausedAs);
  }

  async function descend(row: SandboxRow, rung: Rung, watch: Watched): Promise<void> {
    try {
      await idleDetector.ifStill(row, async (current) => {
        if (allowed(current, watch) !== rung) return;
        if (rung === 'destroyed') await lifecycle.destroy(current, undefined, 'idle');
        else await pausing.descend(current, pauseFallbacks(rung), { cause: 'idle' });
        const reached = sandboxes.get(row.id)?.pausedAs;
        if (rung !== 'destroyed' && reached !== rung) refuse(watch, rung, Number.POSITIVE_INFINITY);
      });
    } catch (error) {
      const unsupported = isCayError(error, 'unsupported');
      refuse(watch, rung, unsupported ? Number.POSITIVE_INFINITY : undefined);
      if (!unsupported) onError(error);
    }
  }

  function refuse({ refused }: Watched, rung: Rung, untilMs?: number): void {
    const times = refused.get(rung)?.times ?? 0;
    refused.set(rung, {
      times: times + 1,
      untilMs: untilMs ?? clock.steady() + Math.min(AGAIN_MS * 2 ** times, AGAIN_AT_MOST_MS),
    });
  }

  async function lookAtAll(): Promise<void> {
    const rows = sandboxes.withIdlePolicy();
    const known = new Set(rows.map(({ id }) => id));
    for (const id of watched.keys()) if (!known.has(id)) watched.delete(id);
    // One after the other: looking must not take the processor from those who work.
    for (const row of rows) {
      if (closed) return;
      await look(row).catch((error: unknown) => {
        // It may have gone meanwhile.
        if (!isCayError(error, 'not_found') && !isCayError(error, 'failed_precondition')) onError(error);
      });
    }
  }

  function sleep(): void {
    if (closed || timer) return;
    let some: boolean;
    try {
      some = sandboxes.hasIdlePolicy();
    } catch (error) {
      onError(error);
      some = true;
    }
    if (!some) return;
    timer = setTimeout(() => {
      lookAtAll()
        .catch(onError)
        .finally(() => {
          timer = undefined;
          sleep();
        });
    }, lookEveryMs);
    timer.unref();
  }

  sleep();
  return {
    changed: sleep,
    close() {
      closed = true;
      clearTimeout(timer);
    },
  };
}
