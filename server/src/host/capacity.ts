/**
 * How much room this machine has. Where the server itself lives in a memory cgroup with a limit, that
 * is the machine.
 */
import { readFileSync } from 'node:fs';

/** Memory that could be had without swapping anything out. */
export function memoryCapacity(meminfo = read('/proc/meminfo')): { totalBytes: number; freeBytes: number } {
  const total = kibibytes(meminfo, 'MemTotal');
  const free = kibibytes(meminfo, 'MemAvailable');
  const bound = cgroupMemory();
  if (!bound || bound.limit >= total) return { totalBytes: total, freeBytes: free };
  return { totalBytes: bound.limit, freeBytes: Math.min(free, Math.max(0, bound.limit - bound.used)) };
}

/** Processes and threads that could still be made. */
export function pidsCapacity(loadavg = read('/proc/loadavg')): { total: number; free: number } {
  const total = Math.min(
    Number(read('/proc/sys/kernel/pid_max')),
    Number(read('/proc/sys/kernel/threads-max')),
  );
  // The fourth field is `running/all`.
  const used = Number(loadavg.split(' ')[3]?.split('/')[1] ?? 0);
  return { total, free: Math.max(0, total - used) };
}

function kibibytes(meminfo: string, field: string): number {
  return Number(new RegExp(`^${field}:\\s+(\\d+) kB`, 'm').exec(meminfo)?.[1] ?? 0) * 1024;
}

/** The limit of the group that the server is in, if there is one. */
function cgroupMemory(): { limit: number; used: number } | undefined {
  for (const [limitFile, usedFile] of [
    ['/sys/fs/cgroup/memory.max', '/sys/fs/cgroup/memory.current'],
    ['/sys/fs/cgroup/memory/memory.limit_in_bytes', '/sys/fs/cgroup/memory/memory.usage_in_bytes'],
  ] as const) {
    const limit = Number(read(limitFile));
    if (Number.isFinite(limit) && limit > 0) return { limit, used: Number(read(usedFile)) || 0 };
  }
  return undefined;
}

function read(path: string): string {
  try {
    return readFileSync(path, 'utf8').trim();
  } catch {
    return '';
  }
}
