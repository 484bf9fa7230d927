/**
 * Makes room among real sandboxes: finds those that nobody uses, and puts them to rest. Whoever needs one
 * wakes it.
 */
import { isCayError, type Pause } from '@cay/sdk/protocol';
import { USES } from '../sandboxes/activity.ts';
import type { Context } from '../context.ts';
import type { Pausing } from '../pausing/pausing.ts';
import type { SandboxRow } from '../../records/sandboxes.ts';
import type { IdleDetector, Watch } from '../pausing/idle-detector.ts';
import { pauseFallbacks } from '../pausing/pause-fallbacks.ts';
import type { Level } from './gauge.ts';
import type { Pressure, Resource } from './pressure.ts';
import { byShare, openReclaim, type Candidate } from './reclaim.ts';

export interface Relief {
  /** There is too little of this. Resolves what was put to rest. */
  relieve(level: Level, resource: Resource): Promise<string[]>;
}

/** How many are looked at closely at a time: asking all guests would itself be a load. */
const LOOKED_AT = 16;
const UNUSED_MS = 30_000;
const REFUSED_MS = 60_000;

export function openRelief(
  context: Context,
  {
    pausing,
    pressure,
    idleDetector,
  }: { pausing: Pausing; pressure: Pick<Pressure, 'readings'>; idleDetector: IdleDetector },
  { unusedMs = UNUSED_MS }: { unusedMs?: number } = {},
): Relief {
  const { activity, backend, clock, onError, sandboxes } = context;
  let short: Exclude<Resource, 'disk'> = 'memory';
  let watched = new Map<string, Watch>();
  /** Those that could not be hibernated, and until when that is not tried again. */
  const refused = new Map<string, number>();

  async function rests(row: SandboxRow, watch: Watch): Promise<boolean> {
    if (row.state !== 'active') return true;
    try {
      return (await idleDetector.busy(row, watch)) === false && !(await idleDetector.runsCommands(row.id));
    } catch (error) {
      // It may have gone, or be on its way somewhere.
      if (!isCayError(error)) onError(error);
      return false;
    }
  }

  async function candidates(): Promise<Candidate[]> {
    for (const [id, untilMs] of refused) if (untilMs <= clock.steady()) refused.delete(id);
    const all = sandboxes.inMemory();
    const shares = sharesOf(all, short);
    const oldest = all
      .filter(({ id }) => activity.count(id, ...USES) === 0)
      .map((row) => ({ row, idleMs: idleDetector.unusedMs(row), share: shares.get(row.project) ?? 0 }))
      .filter(({ idleMs, row }) => idleMs >= unusedMs && !(row.pausedAs === 'frozen' && refused.has(row.id)))
      .sort(byShare)
      .slice(0, LOOKED_AT);
    const watches = new Map(oldest.map(({ row }) => [row.id as string, watched.get(row.id) ?? {}]));
    watched = watches;
    const found: Candidate[] = [];
    for (const { row, idleMs, share } of oldest) {
      if (!(await rests(row, watches.get(row.id)!))) continue;
      const hibernates = backend.ability('memorySnapshots') !== undefined && !refused.has(row.id);
      found.push({ id: row.id, idleMs, share, frozen: row.pausedAs === 'frozen', hibernates });
    }
    return found;
  }

  async function rest(id: string, rung: Pause): Promise<void> {
    const row = sandboxes.get(id);
    if (!row || idleDetector.unusedMs(row) < unusedMs) return;
    try {
      await idleDetector.ifStill(
        row,
        async (current) =>
          void (await pausing.descend(current, pauseFallbacks(rung), { cause: 'pressure', keepsTime: true })),
      );
    } finally {
      if (rung === 'hibernated' && sandboxes.get(id)?.pausedAs !== 'hibernated')
        refused.set(id, clock.steady() + REFUSED_MS);
    }
  }

  const reclaim = openReclaim({
    candidates,
    freeze: (id) => rest(id, 'frozen'),
    hibernate: (id) => rest(id, 'hibernated'),
    unusedMs,
    onError,
  });

  return {
    async relieve(level, resource) {
      // What rests has its files as before, and hibernating writes more of them.
      if (resource === 'disk') return [];
      short = resource;
      const full = pressure.readings().disk?.level === 'critical';
      // One that is frozen keeps its processes.
      if (resource === 'pids') return level === 'critical' && !full ? reclaim.relieve('critical') : [];
      return reclaim.relieve(level === 'critical' && full ? 'warn' : level);
    },
  };
}

/**
 * What the sandboxes of each project that are in memory may take. One without a limit may take all there is.
 */
function sharesOf(rows: readonly SandboxRow[], short: 'memory' | 'pids'): Map<string, number> {
  const shares = new Map<string, number>();
  for (const { project, spec } of rows) {
    const limit = short === 'memory' ? spec.limits.memoryBytes : spec.limits.pids;
    shares.set(project, (shares.get(project) ?? 0) + (limit ?? Number.MAX_SAFE_INTEGER));
  }
  return shares;
}
