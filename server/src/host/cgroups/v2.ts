/** cgroups version 2: one tree, with the controllers that each parent delegates. */
import { join } from 'node:path';
import type { Cgroup, CgroupLimits, Cgroups } from './cgroup.ts';
import * as files from './control-files.ts';
import { serverGroup } from './server-group.ts';
import { resourceError } from '../resource-error.ts';

export interface V2Options {
  /** Where the filesystem is mounted. */
  mount: string;
  /** Path of this installation's parent group, below the mount. */
  prefix: string;
  /** The controllers that the parent delegates. */
  controllers: ReadonlySet<string>;
  /** Of the server's own group, where there is a place for it. */
  serverDir?: string | undefined;
}

const PERIOD_US = 100_000;
const KILL_TIMEOUT_MS = 10_000;
const FREEZE_TIMEOUT_MS = 5_000;

export function cgroupsV2(options: V2Options): Cgroups {
  const has = (name: string) => options.controllers.has(name);
  const server = serverGroup(options.serverDir);
  return {
    version: 'v2',
    // Freezing is part of every group.
    controllers: { cpu: has('cpu'), memory: has('memory'), pids: has('pids'), freezer: true },
    group: (name) => groupV2(name, options),
    server,
    list: async () => files.subgroups(join(options.mount, options.prefix)).toSorted(),
    destroy: async () => {
      const parent = join(options.mount, options.prefix);
      for (const name of files.subgroups(parent)) await groupV2(name, options).remove();
      files.removeGroup(parent);
      server.remove();
    },
  };
}

/** `cpu.max` for a number of processors. The kernel accepts no quota below one millisecond. */
export function cpuMax(cpus: number | null): string {
  return `${cpus === null ? 'max' : Math.max(1_000, Math.round(cpus * PERIOD_US))} ${PERIOD_US}`;
}

/** Memory that the kernel cannot free by evicting cached files. */
export function unreclaimable(current: number, stat: string): number {
  return Math.max(0, current - files.valueOf(stat, 'inactive_file') - files.valueOf(stat, 'active_file'));
}

function groupV2(name: string, { mount, prefix, controllers }: V2Options): Cgroup {
  const dir = join(mount, prefix, name);
  const having = (controller: string) => (controllers.has(controller) ? dir : undefined);

  function applyMemory(bytes: number | null): void {
    // Lowering the limit below the memory in use never fails here: the kernel would kill instead.
    if (
      bytes !== null &&
      unreclaimable(Number(files.read(dir, 'memory.current')), files.read(dir, 'memory.stat')) > bytes
    ) {
      throw resourceError(
        'failed_precondition',
        { kind: 'cgroup', name },
        (cgroup) => `Cannot limit memory of ${cgroup} to ${bytes} bytes: more is in use`,
      );
    }
    files.write(dir, 'memory.max', bytes ?? 'max');
    files.writeIfThere(dir, 'memory.swap.max', bytes === null ? 'max' : 0);
  }

  function apply(limits: Partial<CgroupLimits>): void {
    if (limits.cpus !== undefined && files.requireController(name, 'cpus', limits.cpus, having('cpu'))) {
      files.write(dir, 'cpu.max', cpuMax(limits.cpus));
    }
    if (
      limits.memoryBytes !== undefined &&
      files.requireController(name, 'memory', limits.memoryBytes, having('memory'))
    ) {
      applyMemory(limits.memoryBytes);
    }
    if (
      limits.pids !== undefined &&
      files.requireController(name, 'processes', limits.pids, having('pids'))
    ) {
      files.write(dir, 'pids.max', limits.pids ?? 'max');
    }
  }

  function processes(): number[] {
    const within = (group: string): number[] => [
      ...files.parseProcesses(files.readIfThere(group, 'cgroup.procs') ?? ''),
      ...files.subgroups(group).flatMap((sub) => within(join(group, sub))),
    ];
    return within(dir);
  }

  async function kill(): Promise<void> {
    const emptied = () => {
      const left = processes();
      if (left.length === 0) return true;
      killAll(dir, left);
      return false;
    };
    await files.until(emptied, {
      name,
      what: (cgroup) => `Killing all of ${cgroup}`,
      timeoutMs: KILL_TIMEOUT_MS,
    });
  }

  async function setFrozen(frozen: 0 | 1): Promise<void> {
    files.write(dir, 'cgroup.freeze', frozen);
    await files.until(() => files.valueOf(files.read(dir, 'cgroup.events'), 'frozen') === frozen, {
      name,
      what: (cgroup) => `${frozen ? 'Freezing' : 'Thawing'} ${cgroup}`,
      timeoutMs: FREEZE_TIMEOUT_MS,
    });
  }

  return {
    name,
    ociPath: `/${prefix}/${name}`,
    joinPaths: [dir],
    memoryPath: having('memory'),
    create: async (limits) => {
      const fresh = files.makeGroup(dir);
      // A new group has no limits, so "unlimited" need not be written.
      const given = fresh
        ? Object.fromEntries(Object.entries(limits).filter(([, value]) => value !== null))
        : limits;
      apply(given as Partial<CgroupLimits>);
    },
    update: async (limits) => apply(limits),
    read: async () => ({
      cpuUsageMs: Math.floor(files.valueOf(files.read(dir, 'cpu.stat'), 'usage_usec') / 1e3),
      memoryBytes: controllers.has('memory')
        ? Math.max(
            0,
            Number(files.read(dir, 'memory.current')) -
              files.valueOf(files.read(dir, 'memory.stat'), 'inactive_file'),
          )
        : 0,
      pids: controllers.has('pids') ? Number(files.read(dir, 'pids.current')) : processes().length,
      oomKills: controllers.has('memory') ? files.valueOf(files.read(dir, 'memory.events'), 'oom_kill') : 0,
      ...diskCounters(files.readIfThere(dir, 'io.stat')),
    }),
    processes: async () => processes(),
    freeze: () => setFrozen(1),
    thaw: () => setFrozen(0),
    kill,
    remove: async () => {
      await kill();
      // A process that has just ended keeps its group busy for a moment, and one that is being started may
      // come late.
      const removed = () => {
        if (files.removeGroup(dir)) return true;
        killAll(dir, processes());
        return false;
      };
      await files.until(removed, {
        name,
        what: (cgroup) => `Removing ${cgroup}`,
        timeoutMs: KILL_TIMEOUT_MS,
      });
    },
  };
}

function killAll(dir: string, pids: number[]): void {
  try {
    // Kills everything in or below the group atomically. Kernels before 5.14 do not have it.
    files.write(dir, 'cgroup.kill', 1);
    return;
  } catch (error) {
    if (files.errnoOf(error) !== 'ENOENT') throw error;
  }
  for (const pid of pids) {
    try {
      process.kill(pid, 'SIGKILL');
    } catch (error) {
      // The process has ended.
      if (files.errnoOf(error) !== 'ESRCH') throw error;
    }
  }
}

/** A line for each device: `8:0 rbytes=1 wbytes=2 …`. Without the io controller there is no such file. */
function diskCounters(text: string | undefined): { diskReadBytes?: number; diskWriteBytes?: number } {
  if (text === undefined) return {};
  const sum = (key: string) =>
    [...text.matchAll(new RegExp(`\\b${key}=(\\d+)`, 'g'))].reduce((all, match) => all + Number(match[1]), 0);
  return { diskReadBytes: sum('rbytes'), diskWriteBytes: sum('wbytes') };
}
