/**
 * Pauses, archives and destroys sandboxes that are unused, as their idle policies say.
 *
 * Only sandboxes with a policy are checked, every few seconds: whether a call is inside, whether a lease
 * holds it, and how much processor time it took since the last check. The guest is asked for running commands
 * only when the sandbox would be paused otherwise. Idleness is elapsed time: a clock that is set, or a
 * machine that was suspended, makes nothing idle. While no server runs, the recorded time counts.
 */
import { PAUSES, isCayError, type IdlePolicy, type Pause, type SandboxId } from '@cay/sdk/protocol';
import type { Core } from '../core.ts';
import type { SandboxDestroyer } from '../sandboxes/destroy-sandbox.ts';
import type { Pausing } from './pausing.ts';
import { isLeasedElsewhere } from '../sandboxes/operations.ts';
import type { SandboxRow } from '../../records/tables/sandbox-row.ts';
import type { CpuWatch, IdleDetector } from './idle-detector.ts';
import { pauseFallbacks } from './pause-fallbacks.ts';
import { inBackground } from '../../lib/in-background.ts';

export interface Idling {
  /** A sandbox's policy has changed. */
  changed(): void;
  start(): void;
  /** Resolves when the records are not read any more. */
  close(): Promise<void>;
}

export type IdleLevel = Pause | 'destroyed';

/** The fields of a policy, counted from the last use. */
const AFTER = {
  destroyed: 'destroyAfterMs',
  archived: 'archiveAfterMs',
  hibernated: 'hibernateAfterMs',
  suspended: 'suspendAfterMs',
  frozen: 'freezeAfterMs',
} as const satisfies Record<IdleLevel, keyof IdlePolicy>;
const DEEPEST_FIRST = Object.keys(AFTER) as IdleLevel[];

const CHECK_EVERY_MS = 2_000;
const RETRY_MS = 60_000;
const RETRY_MAX_MS = 3_600_000;

/** The deepest level that is due and deeper than the present one. */
export function dueLevel(policy: IdlePolicy, idleMs: number, at: Pause | null): IdleLevel | undefined {
  const isDeeper = (level: IdleLevel) =>
    level === 'destroyed' || PAUSES.indexOf(level) > (at === null ? -1 : PAUSES.indexOf(at));
  return DEEPEST_FIRST.find((level) => {
    const afterMs = policy[AFTER[level]];
    return afterMs !== null && idleMs >= afterMs && isDeeper(level);
  });
}

interface Watched extends CpuWatch {
  /** Levels that were not possible, and when to try again. */
  refused: Map<IdleLevel, { untilMs: number; times: number }>;
}

export function openIdling({
  activity,
  clock,
  onError,
  records: { sandboxes },
  destroyer,
  idleDetector,
  pausing,
  checkEveryMs = CHECK_EVERY_MS,
}: Pick<Core, 'activity' | 'clock' | 'onError' | 'records'> & {
  destroyer: SandboxDestroyer;
  idleDetector: IdleDetector;
  pausing: Pick<Pausing, 'pauseAt'>;
  checkEveryMs?: number | undefined;
}): Idling {
  const watched = new Map<SandboxId, Watched>();
  const pausingNow = new Set<SandboxId>();
  let timer: NodeJS.Timeout | undefined;
  let wake: (() => void) | undefined;
  let running = false;
  let looping: Promise<void> | undefined;
  let recheck = false;

  async function check(row: SandboxRow): Promise<void> {
    if (pausingNow.has(row.id)) return;
    if (row.idle === null || (row.state !== 'active' && row.state !== 'paused'))
      return void watched.delete(row.id);
    let watch = watched.get(row.id);
    if (!watch) watched.set(row.id, (watch = { refused: new Map() }));
    if (row.state === 'active') {
      const busy = await idleDetector.isBusy(row, watch);
      if (busy) return activity.touch(row.id);
      if (busy === undefined) return;
    }
    const level = allowedLevel(row, watch);
    if (level === undefined) return;
    if (row.state === 'active' && (await idleDetector.runsCommands(row.id))) return activity.touch(row.id);
    // Archiving takes long, and the other sandboxes are checked meanwhile.
    pausingNow.add(row.id);
    inBackground(
      enter(level, row, watch).finally(() => pausingNow.delete(row.id)),
      onError,
    );
  }

  /** The deepest level that is due and was not refused lately. */
  function allowedLevel(row: SandboxRow, { refused }: Watched): IdleLevel | undefined {
    const policy = { ...row.idle! };
    for (const [level, { untilMs }] of refused) if (untilMs > clock.steady()) policy[AFTER[level]] = null;
    return dueLevel(policy, idleDetector.unusedMs(row), row.pausedAs);
  }

  async function enter(level: IdleLevel, row: SandboxRow, watch: Watched): Promise<void> {
    try {
      await idleDetector.runIfUnused(row, async (current) => {
        if (allowedLevel(current, watch) !== level) return;
        if (level === 'destroyed') return destroyer.destroy(current, undefined, 'idle');
        await pausing.pauseAt(current, pauseFallbacks(level), { cause: 'idle' });
        if ((await sandboxes.get(row.id))?.pausedAs !== level) refuse(watch, level, Number.POSITIVE_INFINITY);
      });
    } catch (error) {
      if (isLeasedElsewhere(error)) return;
      const unsupported = isCayError(error, 'unsupported');
      refuse(watch, level, unsupported ? Number.POSITIVE_INFINITY : undefined);
      if (!unsupported) onError(error);
    }
  }

  function refuse({ refused }: Watched, level: IdleLevel, untilMs?: number): void {
    const times = refused.get(level)?.times ?? 0;
    const retryMs = Math.min(RETRY_MS * 2 ** times, RETRY_MAX_MS);
    refused.set(level, { times: times + 1, untilMs: untilMs ?? clock.steady() + retryMs });
  }

  /** One after the other: the checks must not take processor time from busy sandboxes. */
  async function checkAll(): Promise<void> {
    const rows = await sandboxes.withIdlePolicy();
    const known = new Set(rows.map(({ id }) => id));
    for (const id of watched.keys()) if (!known.has(id)) watched.delete(id);
    for (const row of rows) {
      if (!running) return;
      await check(row).catch((error: unknown) => {
        // The sandbox may have been removed or stopped meanwhile.
        if (!isCayError(error, 'not_found') && !isCayError(error, 'failed_precondition')) onError(error);
      });
    }
  }

  async function hasWork(): Promise<boolean> {
    try {
      return await sandboxes.hasIdlePolicy();
    } catch (error) {
      onError(error);
      return true;
    }
  }

  /** Checks until no sandbox has a policy. One loop at a time; a policy that is recorded begins it again. */
  async function loop(): Promise<void> {
    while (running) {
      recheck = false;
      if (!(await hasWork())) {
        // A policy may have been recorded since the records were read.
        if (recheck) continue;
        return;
      }
      await new Promise<void>((resolve) => {
        wake = resolve;
        timer = setTimeout(resolve, checkEveryMs).unref();
      });
      if (running) await checkAll().catch(onError);
    }
  }

  function begin(): void {
    recheck = true;
    if (running) looping ??= loop().finally(() => (looping = undefined));
  }

  return {
    changed: begin,
    start() {
      running = true;
      begin();
    },
    async close() {
      running = false;
      clearTimeout(timer);
      wake?.();
      await looping;
    },
  };
}
