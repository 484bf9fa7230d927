/**
 * A Cgroup limits and measures the processes of one sandbox.
 *
 * We create the groups and write the limits ourselves, for cgroups version 1, version 2 and the hybrid of
 * both; the OCI runtime only joins them. So limits, live changes, freezing and readings are the same for
 * every runtime. A group lives in `/sys/fs/cgroup`, not in memory: another server process finds it by its
 * name.
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
