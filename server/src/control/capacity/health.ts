/** Combines all measurements into one health report. */
import { CayError, type Health } from '@cay/sdk/protocol';
import { systemReason } from '@cay/sdk/system-error';
import type { Backend } from '../../backends/backend.ts';
import { platformsOf } from '../placement/placement.ts';
import { openLoopDelay } from '../../lib/loop-delay.ts';
import { withTimeout } from '../../lib/timeout.ts';
import type { Records } from '../../records/records.ts';
import { worst, type Level } from './gauge.ts';
import type { Pressure, Reading, Resource } from './pressure.ts';
import type { RecentErrors } from './recent-errors.ts';

export interface HealthOptions {
  backend: Backend;
  errors: RecentErrors;
  pressure: Pressure;
  records: Pick<Records, 'ping' | 'sandboxes'>;
  now?(): number;
}

export interface HealthWatch {
  /** Adds an error of background work to the report. */
  noteError(error: unknown): void;
  /** With a project: counts its sandboxes alone, and leaves errors out. */
  check(project?: string): Promise<Health>;
  /** Whether the two parts that every request needs are reachable. */
  ready(): Promise<{ records: boolean; backend: boolean }>;
  close(): void;
}

const RECENT_MS = 5 * 60_000;
const SLOW_LOOP_MS = { warn: 100, critical: 1000 };
const ANSWER_MS = 2_000;
const RESOLUTION_MS = 10;

type Check = Health['checks'][number];

export function watchHealth({
  backend,
  errors,
  pressure,
  records,
  now = Date.now,
}: HealthOptions): HealthWatch {
  const sinceMs = now();
  const loop = openLoopDelay({ resolutionMs: RESOLUTION_MS });

  async function checkOne(name: string, open: () => Promise<Backend>): Promise<Check> {
    try {
      const one = await open();
      await one.list({ signal: AbortSignal.timeout(ANSWER_MS) });
      const { runtimes } = await one.capabilities();
      if (runtimes.length === 0)
        return { name: 'backend', level: 'critical', detail: `${name} has no runtime that works` };
      return { name: 'backend', level: 'ok', detail: `${name}: ${runtimes.join(', ')}` };
    } catch (error) {
      return {
        name: 'backend',
        level: 'critical',
        detail: `${name} does not answer: ${systemReason(error)}`,
      };
    }
  }

  /** With several platforms the report is critical only if none works. */
  async function checkBackend(): Promise<Check[]> {
    const checks = await Promise.all(platformsOf(backend).map(({ name, open }) => checkOne(name, open)));
    if (checks.every(({ level }) => level === 'critical')) return checks;
    return checks.map((check) => (check.level === 'critical' ? { ...check, level: 'warn' } : check));
  }

  async function checkRecords(): Promise<Check> {
    try {
      await withTimeout(
        records.ping(),
        ANSWER_MS,
        () => new CayError('unavailable', 'the records do not answer'),
      );
      return { name: 'records', level: 'ok', detail: 'can be read' };
    } catch (error) {
      return { name: 'records', level: 'critical', detail: systemReason(error) };
    }
  }

  return {
    noteError: errors.add,
    async check(project) {
      const delayMs = loop.delayMs(99);
      const recent = errors.list().filter(({ atMs }) => now() - atMs < RECENT_MS);
      const checks: Check[] = [
        await checkRecords(),
        ...(await checkBackend()),
        ...Object.entries(pressure.readings()).map(([resource, reading]) =>
          showReading(resource as Resource, reading),
        ),
        {
          name: 'event loop',
          level: levelOf(delayMs, SLOW_LOOP_MS),
          detail: `${delayMs.toFixed(1)} ms late at the 99th percentile`,
        },
        {
          name: 'errors',
          level: recent.length > 0 ? 'warn' : 'ok',
          detail: `${recent.length} in the last ${RECENT_MS / 60_000} minutes`,
        },
      ];
      return {
        verdict: worst(checks.map(({ level }) => level)),
        checks,
        resources: Object.entries(pressure.readings()).map(([name, { level, total, free }]) => ({
          name: name as Resource,
          level,
          total,
          free,
          ...pressure.thresholds,
        })),
        pool: pressure.pool() ?? null,
        // A report without counts says more than none.
        sandboxes: await records.sandboxes.counts(project).catch(() => ({})),
        uptimeMs: Math.max(0, now() - sinceMs),
        eventLoopDelayMs: delayMs,
        serverMemoryBytes: process.memoryUsage.rss(),
        recentErrors: project === undefined ? errors.list() : [],
      };
    },
    async ready() {
      return {
        records: (await checkRecords()).level !== 'critical',
        backend: (await checkBackend()).every(({ level }) => level !== 'critical'),
      };
    },
    close: () => loop.close(),
  };
}

function levelOf(value: number, { warn, critical }: { warn: number; critical: number }): Level {
  return value >= critical ? 'critical' : value >= warn ? 'warn' : 'ok';
}

function showReading(resource: Resource, { level, share, total, free }: Reading): Check {
  const amount = (value: number) =>
    resource === 'pids' ? String(value) : `${(value / 1024 ** 3).toFixed(1)} GiB`;
  return {
    name: resource,
    level,
    detail: `${Math.round(share * 100)} % in use, ${amount(free)} of ${amount(total)} free`,
  };
}
