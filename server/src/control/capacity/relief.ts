/** Makes room on the machine: finds sandboxes that are unused, and pauses them. The next call wakes them. */
import { isCayError, type Pause } from '@cay/sdk/protocol';
import { USES } from '../sandboxes/activity.ts';
import type { Core } from '../core.ts';
import type { Pausing } from '../pausing/pausing.ts';
import type { SandboxRow } from '../../records/tables/sandbox-row.ts';
import type { CpuWatch, IdleDetector } from '../pausing/idle-detector.ts';
import { pauseFallbacks } from '../pausing/pause-fallbacks.ts';
import type { Level } from './gauge.ts';
import type { Resource } from './pressure.ts';
import { byShare, openReclaim, type Candidate } from './reclaim.ts';

export interface Relief {
  /** Pauses unused sandboxes from now on, whenever a resource of the machine is short. */
  start(): void;
  /** Resolves when the work under way is done. */
  close(): Promise<void>;
}

/** How many sandboxes are checked closely at a time: asking every guest would itself be a load. */
const CHECKED_AT_ONCE = 16;
const UNUSED_MS = 30_000;
const REFUSED_MS = 60_000;

export function openRelief({
  activity,
  backend,
  clock,
  closing,
  onError,
  pressure,
  records: { sandboxes },
  idleDetector,
  pausing,
  unusedMs = UNUSED_MS,
}: Pick<Core, 'activity' | 'backend' | 'clock' | 'closing' | 'onError' | 'pressure' | 'records'> & {
  idleDetector: IdleDetector;
  pausing: Pick<Pausing, 'pauseAt'>;
  unusedMs?: number | undefined;
}): Relief {
  let underWay: Promise<unknown> | undefined;
  let short: Exclude<Resource, 'disk'> = 'memory';
  let watched = new Map<string, CpuWatch>();
  /** Sandboxes that could not be hibernated, and when to try again. */
  const refused = new Map<string, number>();

  async function isUnused(row: SandboxRow, watch: CpuWatch): Promise<boolean> {
    if (row.state !== 'active') return true;
    try {
      return (await idleDetector.isBusy(row, watch)) === false && !(await idleDetector.runsCommands(row.id));
    } catch (error) {
      // The sandbox may have been removed or paused meanwhile.
      if (!isCayError(error)) onError(error);
      return false;
    }
  }

  async function candidates(): Promise<Candidate[]> {
    for (const [id, untilMs] of refused) if (untilMs <= clock.steady()) refused.delete(id);
    const all = await sandboxes.inMemory();
    const shares = sharesOf(all, short);
    const oldest = all
      .filter(({ id }) => activity.count(id, ...USES) === 0)
      .map((row) => ({ row, idleMs: idleDetector.unusedMs(row), share: shares.get(row.project) ?? 0 }))
      .filter(({ idleMs, row }) => idleMs >= unusedMs && !(row.pausedAs === 'frozen' && refused.has(row.id)))
      .sort(byShare)
      .slice(0, CHECKED_AT_ONCE);
    const watches = new Map(oldest.map(({ row }) => [row.id as string, watched.get(row.id) ?? {}]));
    watched = watches;
    const found: Candidate[] = [];
    for (const { row, idleMs, share } of oldest) {
      if (!(await isUnused(row, watches.get(row.id)!))) continue;
      const hibernates = backend.ability('memorySnapshots') !== undefined && !refused.has(row.id);
      found.push({ id: row.id, idleMs, share, frozen: row.pausedAs === 'frozen', hibernates });
    }
    return found;
  }

  async function pause(id: string, level: Pause): Promise<void> {
    const row = await sandboxes.get(id);
    if (!row || idleDetector.unusedMs(row) < unusedMs) return;
    try {
      await idleDetector.runIfUnused(row, async (current) => {
        await pausing.pauseAt(current, pauseFallbacks(level), { cause: 'pressure', keepsTimeout: true });
      });
    } finally {
      if (level === 'hibernated' && (await sandboxes.get(id))?.pausedAs !== 'hibernated')
        refused.set(id, clock.steady() + REFUSED_MS);
    }
  }

  const reclaim = openReclaim({
    candidates,
    freeze: (id) => pause(id, 'frozen'),
    hibernate: (id) => pause(id, 'hibernated'),
    unusedMs,
    onError,
  });

  async function relieve(level: Level, resource: Resource): Promise<unknown> {
    // A paused sandbox keeps its files, and hibernating writes more.
    if (resource === 'disk') return [];
    short = resource;
    const diskFull = pressure.readings().disk?.level === 'critical';
    // A frozen sandbox keeps its processes.
    if (resource === 'pids') return level === 'critical' && !diskFull ? reclaim.relieve('critical') : [];
    return reclaim.relieve(level === 'critical' && diskFull ? 'warn' : level);
  }

  return {
    start: () =>
      pressure.onPressure((level, resource) => {
        if (!closing.aborted) underWay = relieve(level, resource).catch(onError);
      }),
    async close() {
      await underWay;
    },
  };
}

/**
 * What the sandboxes of each project that are in memory may take. A sandbox without a limit counts as more
 * than any other.
 */
function sharesOf(rows: readonly SandboxRow[], short: 'memory' | 'pids'): Map<string, number> {
  const shares = new Map<string, number>();
  for (const { project, spec } of rows) {
    const limit = short === 'memory' ? spec.limits.memoryBytes : spec.limits.pids;
    shares.set(project, (shares.get(project) ?? 0) + (limit ?? Number.MAX_SAFE_INTEGER));
  }
  return shares;
}
