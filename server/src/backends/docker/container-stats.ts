import type { Stats } from '@cay/sdk/protocol';

/** What is read of `GET /containers/{id}/stats`; fields that a cgroup version lacks are absent. */
export interface ContainerStats {
  read?: string;
  cpu_stats?: { cpu_usage?: { total_usage?: number } };
  memory_stats?: {
    usage?: number;
    limit?: number;
    stats?: { total_inactive_file?: number; inactive_file?: number };
  };
  pids_stats?: { current?: number };
  blkio_stats?: { io_service_bytes_recursive?: { op?: string; value?: number }[] | null };
  networks?: Record<string, { rx_bytes?: number; tx_bytes?: number }>;
}

export interface StatsContext {
  /** 0 for none. */
  memoryLimitBytes: number;
  diskLimitBytes: number | null;
  oomKills: number;
}

export function toStats(read: ContainerStats, context: StatsContext): Stats {
  const { usage = 0, stats = {} } = read.memory_stats ?? {};
  // cgroup v1 counts descendants in the total_ fields only; v2 has no such fields and always counts them.
  const reclaimable = stats.total_inactive_file ?? stats.inactive_file ?? 0;
  // A container without a network has no counters.
  const networks = read.networks && Object.values(read.networks);
  // Absent where the engine's cgroups do not count it.
  const disk = read.blkio_stats?.io_service_bytes_recursive;
  const moved = (op: string) =>
    disk?.length
      ? disk.reduce((sum, each) => sum + (each.op?.toLowerCase() === op ? (each.value ?? 0) : 0), 0)
      : null;
  const readAt = Date.parse(read.read ?? '');
  return {
    // An engine that has not read yet says the year 1.
    atMs: readAt > 0 ? readAt : Date.now(),
    cpuUsageMs: (read.cpu_stats?.cpu_usage?.total_usage ?? 0) / 1e6,
    memoryBytes: Math.max(0, usage - reclaimable),
    memoryLimitBytes: context.memoryLimitBytes || null,
    pids: read.pids_stats?.current ?? 0,
    diskBytes: null,
    diskLimitBytes: context.diskLimitBytes,
    networkRxBytes: networks?.reduce((sum, { rx_bytes = 0 }) => sum + rx_bytes, 0) ?? null,
    networkTxBytes: networks?.reduce((sum, { tx_bytes = 0 }) => sum + tx_bytes, 0) ?? null,
    diskReadBytes: moved('read'),
    diskWriteBytes: moved('write'),
    oomKills: context.oomKills,
  };
}
