import { totalmem } from 'node:os';
import type { SandboxId } from '@cay/sdk/protocol';
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
