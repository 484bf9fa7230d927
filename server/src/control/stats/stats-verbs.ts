import type { SandboxId, SandboxSpace, Stats, StatsHistory, StatsSample } from '@cay/sdk/protocol';
import type { StatsScope } from '../../backends/backend.ts';
import type { Core } from '../core.ts';
import type { StatRings } from './stat-rings.ts';
import type { KeptStats } from './stat-rings.ts';
import type { StatsVerbs } from './stats.ts';

/** What the server carries for a sandbox, where its platform does not count. */
export function statsReader({
  backend,
  egress,
}: Pick<Core, 'backend' | 'egress'>): (id: SandboxId, options?: StatsScope) => Promise<Stats> {
  return async (id, options) => {
    const read = await backend.stats(id, options);
    const carried = egress?.engine.stats(id);
    if (!carried) return read;
    return { ...read, networkRxBytes: carried.bytesIn, networkTxBytes: carried.bytesOut };
  };
}

export function statsVerbs({
  backend,
  clock,
  lookup,
  records,
  rings,
}: Pick<Core, 'backend' | 'clock' | 'lookup' | 'records'> & { rings: StatRings | undefined }): StatsVerbs {
  return {
    async statsHistory(principal, ref, { sinceMs, untilMs } = {}): Promise<StatsHistory> {
      const { id } = await lookup.find(principal, ref);
      if (!rings) return { intervalMs: 0, keptMs: 0, samples: [] };
      const keptMs = rings.intervalMs * rings.slots;
      const nowMs = clock.now();
      const fromMs = Math.max(sinceMs ?? 0, nowMs - keptMs);
      // One more than asked for: the first share of a processor needs the reading before.
      const readings = await rings.read(id, {
        fromMs: fromMs - 2 * rings.intervalMs,
        toMs: untilMs ?? nowMs,
      });
      const samples = readings.map((reading, at) => sampleOf(reading, readings[at - 1]));
      return { intervalMs: rings.intervalMs, keptMs, samples: samples.filter(({ atMs }) => atMs >= fromMs) };
    },

    async space(principal, ref): Promise<SandboxSpace> {
      const row = await lookup.find(principal, ref);
      const kept = await records.snapshots.list({ sandbox: row.id, project: row.project });
      const isUnknown = kept.some(({ fileBytes }) => fileBytes === null);
      const bytes = kept.reduce((sum, each) => sum + (each.fileBytes ?? 0) + (each.memoryBytes ?? 0), 0);
      const sizing = row.pausedAs === 'archived' ? undefined : backend.ability('space');
      const fileBytes =
        row.pausedAs === 'archived'
          ? 0
          : ((await sizing?.spaceOf(row.id).catch(() => undefined))?.fileBytes ?? null);
      return {
        fileBytes,
        memoryImageBytes: row.pausedAs === 'hibernated' ? row.imageBytes : 0,
        snapshots: { count: kept.length, bytes: isUnknown ? null : bytes },
      };
    },
  };
}

function sampleOf(reading: KeptStats, before: KeptStats | undefined): StatsSample {
  const elapsedMs = before ? reading.atMs - before.atMs : 0;
  // A counter that went back belongs to another incarnation.
  const usedMs = before ? reading.cpuUsageMs - before.cpuUsageMs : -1;
  const { memoryBytes, memoryLimitBytes } = reading;
  return {
    ...reading,
    cpuPercent: elapsedMs > 0 && usedMs >= 0 ? rounded((usedMs / elapsedMs) * 100) : null,
    memoryPercent: memoryLimitBytes ? rounded((memoryBytes / memoryLimitBytes) * 100) : null,
  };
}

const rounded = (percent: number) => Math.round(percent * 100) / 100;
