/** cgroups version 1, also in the hybrid setup: one directory tree for each controller. */
import { join } from 'node:path';
import type { Cgroup, CgroupLimits, Cgroups } from './cgroup.ts';
import * as files from './control-files.ts';
import { serverGroup } from './server-group.ts';
import { resourceError } from '../resource-error.ts';

export const V1_CONTROLLERS = ['cpu', 'cpuacct', 'memory', 'pids', 'freezer'] as const;
export type V1Controller = (typeof V1_CONTROLLERS)[number];

export interface V1Options {
  /** The directory of each controller below which groups are made. Two may share one. */
  controllers: Partial<Record<V1Controller, string>>;
  /** The same for all other hierarchies. We do not use them, but runtimes create the group there too. */
  others: string[];
  /** Path of this installation's parent group. */
  prefix: string;
  /** Whether the directories are the roots of their hierarchies. */
  atRoot: boolean;
  /** Of the server's own group, where there is a place for it. */
  serverDir?: string | undefined;
}

const PERIOD_US = 100_000;
const KILL_TIMEOUT_MS = 10_000;
const FREEZE_TIMEOUT_MS = 5_000;

export function cgroupsV1(options: V1Options): Cgroups {
  const { controllers, prefix } = options;
  const everywhere = [...new Set([...Object.values(controllers), ...options.others])];
  const list = () => [...new Set(everywhere.flatMap((dir) => files.subgroups(join(dir, prefix))))].toSorted();
  const server = serverGroup(options.serverDir);
  return {
    version: 'v1',
    controllers: {
      cpu: controllers.cpu !== undefined,
      memory: controllers.memory !== undefined,
      pids: controllers.pids !== undefined,
      freezer: controllers.freezer !== undefined,
    },
    group: (name) => groupV1(name, options, everywhere),
    server,
    list: async () => list(),
    destroy: async () => {
      for (const name of list()) await groupV1(name, options, everywhere).remove();
      for (const dir of everywhere) files.removeGroup(join(dir, prefix));
      server.remove();
    },
  };
}

function groupV1(name: string, { controllers, prefix, atRoot }: V1Options, everywhere: string[]): Cgroup {
  const below = (dir: string | undefined) => (dir === undefined ? undefined : join(dir, prefix, name));
  const cpu = below(controllers.cpu);
  const cpuacct = below(controllers.cpuacct);
  const memory = below(controllers.memory);
  const pids = below(controllers.pids);
  const freezer = below(controllers.freezer);
  const joinPaths = [...new Set([cpu, cpuacct, memory, pids, freezer].filter((dir) => dir !== undefined))];

  function apply(limits: Partial<CgroupLimits>): void {
    if (limits.cpus !== undefined && files.requireController(name, 'cpus', limits.cpus, cpu)) {
      files.write(cpu, 'cpu.cfs_quota_us', quotaUs(limits.cpus));
    }
    if (
      limits.memoryBytes !== undefined &&
      files.requireController(name, 'memory', limits.memoryBytes, memory)
    ) {
      writeMemoryLimit(name, memory, limits.memoryBytes);
    }
    if (limits.pids !== undefined && files.requireController(name, 'processes', limits.pids, pids)) {
      files.write(pids, 'pids.max', limits.pids ?? 'max');
    }
  }

  /** Also processes that a runtime has put into other hierarchies but not yet into ours. */
  function processes(): number[] {
    const texts = everywhere.map((dir) => files.readIfThere(join(dir, prefix, name), 'cgroup.procs') ?? '');
    return [...new Set(texts.flatMap(files.parseProcesses))];
  }

  async function kill(): Promise<void> {
    let rounds = 0;
    const emptied = () => {
      const left = processes();
      if (left.length === 0) return true;
      rounds += 1;
      // A fork bomb cannot fork once no process may be added.
      if (rounds === 3 && pids !== undefined) files.writeIfThere(pids, 'pids.max', 0);
      left.forEach(sigkill);
      // A frozen process is not killed before it thaws.
      if (freezer !== undefined) files.writeIfThere(freezer, 'freezer.state', 'THAWED');
      return false;
    };
    const pidsMax = pids === undefined ? undefined : files.readIfThere(pids, 'pids.max');
    await files.until(emptied, {
      name,
      what: (cgroup) => `Killing all of ${cgroup}`,
      timeoutMs: KILL_TIMEOUT_MS,
    });
    if (rounds >= 3 && pids !== undefined && pidsMax !== undefined)
      files.writeIfThere(pids, 'pids.max', pidsMax.trim());
  }

  async function setFreezer(state: 'FROZEN' | 'THAWED'): Promise<void> {
    if (freezer === undefined)
      throw resourceError(
        'unsupported',
        { kind: 'cgroup', name },
        (cgroup) => `Cannot freeze ${cgroup}: this machine has no freezer`,
      );
    // Some kernels miss a process that is forked, or goes to sleep, just then: the group stays FREEZING until
    // the state is written again.
    const done = () => {
      files.write(freezer, 'freezer.state', state);
      return files.read(freezer, 'freezer.state').trim() === state;
    };
    const what = (cgroup: string) => `Changing ${cgroup} to ${state}`;
    try {
      await files.until(done, { name, what, timeoutMs: FREEZE_TIMEOUT_MS });
    } catch (error) {
      // Half frozen is neither: a caller that is refused goes on with processes that run.
      files.writeIfThere(freezer, 'freezer.state', 'THAWED');
      throw error;
    }
  }

  return {
    name,
    // A relative path means: below the runtime's own group, which is ours, in each hierarchy.
    ociPath: atRoot ? `/${prefix}/${name}` : `${prefix}/${name}`,
    joinPaths,
    memoryPath: memory,
    create: async (limits) => {
      const made = joinPaths.map(files.makeGroup);
      const fresh = made.every(Boolean);
      // A new group has no limits, so "unlimited" need not be written.
      const given = fresh
        ? Object.fromEntries(Object.entries(limits).filter(([, value]) => value !== null))
        : limits;
      apply(given as Partial<CgroupLimits>);
    },
    update: async (limits) => apply(limits),
    read: async () => {
      const usage = memory === undefined ? 0 : Number(files.read(memory, 'memory.usage_in_bytes'));
      const cache =
        memory === undefined ? 0 : files.valueOf(files.read(memory, 'memory.stat'), 'total_inactive_file');
      return {
        cpuUsageMs:
          cpuacct === undefined ? 0 : Math.floor(Number(files.read(cpuacct, 'cpuacct.usage')) / 1e6),
        memoryBytes: Math.max(0, usage - cache),
        pids: pids === undefined ? processes().length : Number(files.read(pids, 'pids.current')),
        oomKills:
          memory === undefined ? 0 : files.valueOf(files.read(memory, 'memory.oom_control'), 'oom_kill'),
      };
    },
    processes: async () => processes(),
    freeze: () => setFreezer('FROZEN'),
    thaw: () => setFreezer('THAWED'),
    kill,
    remove: async () => {
      await kill();
      // A process that has just ended keeps its group busy for a moment, and one that is being started may
      // come late.
      const removed = () => {
        if (everywhere.map((dir) => files.removeGroup(join(dir, prefix, name))).every(Boolean)) return true;
        processes().forEach(sigkill);
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

/** The kernel accepts no quota below one millisecond. */
function quotaUs(cpus: number | null): number {
  return cpus === null ? -1 : Math.max(1_000, Math.round(cpus * PERIOD_US));
}

/** The limit on memory plus swap, where the kernel counts swap; it may never be the lower of the two. */
function writeMemoryLimit(name: string, dir: string, bytes: number | null): void {
  const wanted = bytes ?? -1;
  const swap = files.readIfThere(dir, 'memory.memsw.limit_in_bytes');
  const raising = bytes === null || (swap !== undefined && bytes > Number(swap));
  try {
    if (swap !== undefined && raising) files.write(dir, 'memory.memsw.limit_in_bytes', wanted);
    files.write(dir, 'memory.limit_in_bytes', wanted);
    if (swap !== undefined && !raising) files.write(dir, 'memory.memsw.limit_in_bytes', wanted);
  } catch (error) {
    if (files.errnoOf(error) !== 'EBUSY') throw error;
    throw resourceError(
      'failed_precondition',
      { kind: 'cgroup', name },
      (cgroup) => `Cannot limit memory of ${cgroup} to ${bytes} bytes: more is in use`,
      { cause: error },
    );
  }
}

function sigkill(pid: number): void {
  try {
    process.kill(pid, 'SIGKILL');
  } catch (error) {
    // The process has ended.
    if (files.errnoOf(error) !== 'ESRCH') throw error;
  }
}
