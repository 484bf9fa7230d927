import { totalmem } from 'node:os';
import type { Sandbox, SandboxId, StatsSample } from '@cay/sdk/protocol';
import type { Control } from '../../../control/control.ts';
import type { Principal } from '../../../control/tenants/principal.ts';
import { cpuCount } from './show.ts';

/** CPU use is the difference of two readings this far apart. */
const INTERVAL_MS = 100;

/** One reading in E2B's terms, sizes in bytes. What is not measured is null. */
export async function measure(
  control: Pick<Control, 'get' | 'samples'>,
  principal: Principal,
  id: SandboxId,
  signal?: AbortSignal,
) {
  const sandbox = await control.get(principal, id);
  const samples = await control.samples(principal, id, { intervalMs: INTERVAL_MS, signal });
  const readings = [];
  for await (const stats of samples) if (readings.push(stats) === 2) break;
  const [first, stats] = [readings[0]!, readings[1]!];
  const cores = cpuCount(sandbox);
  const used = (stats.cpuUsageMs - first.cpuUsageMs) / Math.max(1, stats.atMs - first.atMs) / cores;
  return {
    timestamp: new Date(stats.atMs).toISOString(),
    timestampUnix: Math.floor(stats.atMs / 1000),
    cpuCount: cores,
    cpuUsedPct: Math.round(Math.min(1, Math.max(0, used)) * 10_000) / 100,
    memUsed: stats.memoryBytes,
    memTotal: stats.memoryLimitBytes ?? totalmem(),
    memCache: null,
    diskUsed: stats.diskBytes,
    diskTotal: stats.diskLimitBytes,
  };
}

/** Readings of the past in E2B's terms, between these seconds. */
export async function measuredBefore(
  control: Pick<Control, 'statsHistory'>,
  principal: Principal,
  sandbox: Sandbox,
  { start, end }: { start?: number | undefined; end?: number | undefined },
) {
  const { samples } = await control.statsHistory(principal, sandbox.id, {
    sinceMs: start === undefined ? undefined : start * 1000,
    untilMs: end === undefined ? undefined : end * 1000 + 999,
  });
  const cores = cpuCount(sandbox);
  // E2B's clients want a share of the processor in each, which the first of an incarnation has not.
  return samples.filter(hasShare).map((sample) => ({
    timestamp: new Date(sample.atMs).toISOString(),
    timestampUnix: Math.floor(sample.atMs / 1000),
    cpuCount: cores,
    cpuUsedPct: Math.round(Math.min(100, sample.cpuPercent / cores) * 100) / 100,
    memUsed: sample.memoryBytes,
    memTotal: sample.memoryLimitBytes ?? totalmem(),
    memCache: null,
    diskUsed: sample.diskBytes,
    diskTotal: sample.diskLimitBytes,
  }));
}

const hasShare = (sample: StatsSample): sample is StatsSample & { cpuPercent: number } =>
  sample.cpuPercent !== null;
