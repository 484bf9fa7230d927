import { setTimeout as sleep } from 'node:timers/promises';
import { totalmem } from 'node:os';
import type { Sandbox } from '@cay/sdk/protocol';
import type { Backend } from '../../../backends/backend.ts';
import { cpuCount } from './show.ts';

/** Counters only tell the use of a processor between two readings. */
const BETWEEN_MS = 100;

/** One reading in E2B's terms, sizes in bytes. What is not measured is null. */
export async function measure(backend: Backend, sandbox: Sandbox, signal?: AbortSignal) {
  const first = await backend.stats(sandbox.id, { signal });
  await sleep(BETWEEN_MS, undefined, { signal });
  const stats = await backend.stats(sandbox.id, { signal });
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
