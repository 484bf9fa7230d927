/**
 * A Cgroup bounds and measures the processes of one sandbox.
 *
 * We make the groups ourselves and write the limits ourselves, under version 1, version 2 and the
 * hybrid of both, and only let the OCI runtime join them: so limits, live changes, freezing and
 * readings are the same whatever the runtime is. A group lives in `/sys/fs/cgroup`, not in memory:
 * another server process finds it again by its name.
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
}

export interface Cgroup {
  readonly name: string;
  /** What `linux.cgroupsPath` of an OCI bundle has to say for the runtime to join this group. */
  readonly ociPath: string;
  /** Directories whose `cgroup.procs` a process writes itself into in order to join. */
  readonly joinPaths: string[];
  /**
   * The directory that has the memory events; bind-mounted read-only for the guest. Absent if memory is not
   * controlled here.
   */
  readonly memoryPath: string | undefined;
  /** Makes the group if need be. */
  create(limits: CgroupLimits): Promise<void>;
  /**
   * Applies those that are given. Rejects `failed_precondition` when more memory is in use than would be
   * allowed.
   */
  update(limits: Partial<CgroupLimits>): Promise<void>;
  read(): Promise<CgroupReading>;
  processes(): Promise<number[]>;
  freeze(): Promise<void>;
  thaw(): Promise<void>;
  /** SIGKILL to everything in it, until nothing is left. Absent is done. */
  kill(): Promise<void>;
  /** Kills what is left and removes the group. Absent is done. */
  remove(): Promise<void>;
}

/** The cgroup filesystem of this machine, as one of the versions has it. */
export interface Cgroups {
  readonly version: 'v1' | 'v2';
  /** Which limits the machine's controllers can enforce. */
  readonly controllers: { cpu: boolean; memory: boolean; pids: boolean; freezer: boolean };
  group(name: string): Cgroup;
  /** The server's own, which is none of the installation's groups. */
  readonly server: ServerGroup;
  /** Names of all groups of this installation. */
  list(): Promise<string[]>;
  /** Kills what is left, and removes all groups and this installation's parent group. Absent is done. */
  destroy(): Promise<void>;
}
