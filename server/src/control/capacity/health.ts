/** Puts what is measured into one verdict. Asked for rarely; keeps only the last few errors. */
import type { Health } from '@cay/sdk/protocol';
import type { Backend } from '../../backends/backend.ts';
import { platformsOf } from '../placement/placement.ts';
import { openLoopDelay } from '../../lib/loop-delay.ts';
import { worst, type Level } from './gauge.ts';
import type { Pressure, Reading, Resource } from './pressure.ts';

export interface HealthOptions {
  backend: Backend;
  pressure: Pressure;
  /** Throws if the records cannot be read. */
  records(): void;
  counts(project?: string): Record<string, number>;
  now?(): number;
}

export interface HealthWatch {
  /** Notes something that went wrong in the background. */
  noteError(error: unknown): void;
  /** With a project, sandboxes are counted of that one alone and errors are left out. */
  check(project?: string): Promise<Health>;
  /** Whether the two answer without which nothing can be done. */
  ready(): Promise<{ records: boolean; backend: boolean }>;
  close(): void;
}

const KEPT_ERRORS = 20;
const RECENT_MS = 5 * 60_000;
const MESSAGE_LENGTH = 500;
const SLOW_LOOP_MS = { warn: 100, critical: 1000 };
const ANSWER_MS = 2_000;
const RESOLUTION_MS = 10;

type Check = Health['checks'][number];

export function watchHealth({
  backend,
  pressure,
  records,
  counts,
  now = Date.now,
}: HealthOptions): HealthWatch {
  const sinceMs = now();
  const loop = openLoopDelay({ resolutionMs: RESOLUTION_MS });
  let errors: Health['recentErrors'] = [];

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
        detail: `${name} does not answer: ${(error as Error).message}`,
      };
    }
  }

  /** Of several platforms each; as long as one works there is something that can be done. */
  async function checkBackend(): Promise<Check[]> {
    const checks = await Promise.all(platformsOf(backend).map(({ name, open }) => checkOne(name, open)));
    if (checks.every(({ level }) => level === 'critical')) return checks;
    return checks.map((check) => (check.level === 'critical' ? { ...check, level: 'warn' } : check));
  }

  function checkRecords(): Check {
    try {
      records();
      return { name: 'records', level: 'ok', detail: 'can be read' };
    } catch (error) {
      return { name: 'records', level: 'critical', detail: (error as Error).message };
    }
  }

  return {
    noteError(error) {
      errors = [
        ...errors.slice(1 - KEPT_ERRORS),
        { atMs: now(), message: String((error as Error)?.message ?? error).slice(0, MESSAGE_LENGTH) },
      ];
    },
    async check(project) {
      const delayMs = loop.delayMs(99);
      const recent = errors.filter(({ atMs }) => now() - atMs < RECENT_MS);
      const checks: Check[] = [
        checkRecords(),
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
        sandboxes: counts(project),
        uptimeMs: Math.max(0, now() - sinceMs),
        eventLoopDelayMs: delayMs,
        serverMemoryBytes: process.memoryUsage.rss(),
        recentErrors: project === undefined ? errors : [],
      };
    },
    async ready() {
      return {
        records: checkRecords().level !== 'critical',
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
