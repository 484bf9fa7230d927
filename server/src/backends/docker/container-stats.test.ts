import { StatsSchema } from '@cay/sdk/protocol';
import { describe, expect, it } from 'vitest';
import { toStats } from './container-stats.ts';

const context = { memoryLimitBytes: 1000, diskLimitBytes: null, oomKills: 2 };

describe('stats of a container', () => {
  it('are read from cgroup v1, where the totals count descendants', () => {
    const stats = toStats(
      {
        read: '2026-01-02T03:04:05.678Z',
        cpu_stats: { cpu_usage: { total_usage: 2_500_000 } },
        memory_stats: { usage: 900, limit: 1000, stats: { total_inactive_file: 300, inactive_file: 1 } },
        pids_stats: { current: 3 },
      },
      context,
    );
    expect(stats).toMatchObject({
      atMs: Date.UTC(2026, 0, 2, 3, 4, 5, 678),
      cpuUsageMs: 2.5,
      memoryBytes: 600,
      memoryLimitBytes: 1000,
      pids: 3,
      oomKills: 2,
    });
    expect(StatsSchema.safeParse(stats).success).toBe(true);
  });

  it('are read from cgroup v2', () => {
    const stats = toStats(
      {
        memory_stats: { usage: 900, stats: { inactive_file: 200 } },
        networks: { eth0: { rx_bytes: 5, tx_bytes: 7 } },
      },
      context,
    );
    expect(stats).toMatchObject({ memoryBytes: 700, networkRxBytes: 5, networkTxBytes: 7 });
  });

  it('of a container that has just ended are zeros and still valid', () => {
    const stats = toStats(
      { read: '0001-01-01T00:00:00Z', memory_stats: {} },
      { ...context, memoryLimitBytes: 0 },
    );
    expect(stats).toMatchObject({
      cpuUsageMs: 0,
      memoryBytes: 0,
      memoryLimitBytes: null,
      networkRxBytes: null,
      networkTxBytes: null,
    });
    expect(StatsSchema.safeParse(stats).success).toBe(true);
  });
});
