/**
 * A Cgroup limits and measures the processes of one sandbox.
 *
 * We create the groups and write the limits ourselves, for cgroups version 1, version 2 and the hybrid of
 * both; the OCI runtime only joins them. So limits, live changes, freezing and readings are the same for
 * every runtime.
 *
 * **Terms.** A *group* is a directory of the cgroup filesystem with the processes of one instance. A
 * *controller* is the part of the kernel that enforces one kind of limit; `controllers` says which this
 * machine has. All groups of an installation are below one *parent group*, and `name` is the name below it.
 *
 * **Who calls it, how often.** `host/instances`: `create` and `remove` once for each instance, `update` when
 * limits change, `freeze` and `thaw` for pauses and parking, `read` for each `stats` call, to see whether an
 * instance is idle, and at its end for its OOM kills. The sweep of the local backend calls `list` every
 * minute.
 *
 * **Concurrency.** Verbs on different groups run at once. The caller runs those that change one group one
 * after the other; `read` and `processes` may run at any time.
 *
 * **Crashes.** A group is in `/sys/fs/cgroup` and not in memory: the next server finds it by its name, with
 * its limits and processes. `create`, `kill` and `remove` may be repeated.
 *
 * **Errors.** `unsupported` for a limit whose controller is missing: a limit that is not enforced is not
 * accepted. `failed_precondition` for a memory limit below what is in use. `deadline_exceeded` where the
 * kernel has not frozen or ended all processes in time. What the filesystem rejects is passed on.
 *
 * **Cost.** A few reads and writes of files that the kernel makes from memory: microseconds each, and
 * synchronous. `kill` and `remove` wait for the last process.
 *
 *     const cgroup = cgroups.group('i42');
 *     await cgroup.create({ cpus: 2, memoryBytes: 512 * 1024 ** 2, pids: 256 });
 *     await runtime.start({ cgroup, … });                       // the runtime joins `ociPath`
 *     const { cpuUsageMs, oomKills } = await cgroup.read();
 *     await cgroup.update({ memoryBytes: null });               // null is no limit
 *     await cgroup.freeze();
 *     await cgroup.thaw();
 *     await cgroup.remove();                                    // kills what is left
 */
import type { ServerGroup } from './server-group.ts';

export interface CgroupLimits {
  cpus: number | null;
  memoryBytes: number | null;
  pids: number | null;
}

export interface CgroupReading {
  cpuUsageMs: number;
  memoryBytes: number;
  pids: number;
  oomKills: number;
  /** Absent where the machine does not count them for this group. */
  diskReadBytes?: number;
  diskWriteBytes?: number;
}

export interface Cgroup {
  readonly name: string;
  /** The `linux.cgroupsPath` of an OCI bundle that makes the runtime join this group. */
  readonly ociPath: string;
  /** Directories with the `cgroup.procs` files that a process writes itself into to join. */
  readonly joinPaths: string[];
  /**
   * The directory with the memory events, bind-mounted read-only for the guest. Absent if memory is not
   * controlled here.
   */
  readonly memoryPath: string | undefined;
  /** Creates the group if it does not exist. */
  create(limits: CgroupLimits): Promise<void>;
  /**
   * Applies the given limits. Rejects `failed_precondition` if more memory is in use than would be allowed.
   */
  update(limits: Partial<CgroupLimits>): Promise<void>;
  read(): Promise<CgroupReading>;
  processes(): Promise<number[]>;
  freeze(): Promise<void>;
  thaw(): Promise<void>;
  /** Sends SIGKILL to all processes in it until none is left. Does nothing if the group is absent. */
  kill(): Promise<void>;
  /** Kills all processes in it and removes the group. Does nothing if it is absent. */
  remove(): Promise<void>;
}

/** The cgroup filesystem of this machine; one driver for each version. */
export interface Cgroups {
  readonly version: 'v1' | 'v2';
  /** The limits that the machine's controllers can enforce. */
  readonly controllers: { cpu: boolean; memory: boolean; pids: boolean; freezer: boolean };
  group(name: string): Cgroup;
  /** The server's own group, which is not one of the installation's groups. */
  readonly server: ServerGroup;
  /** Names of all groups of this installation. */
  list(): Promise<string[]>;
  /**
   * Kills all processes in them and removes all groups and the installation's parent group. Does nothing if
   * absent.
   */
  destroy(): Promise<void>;
}
