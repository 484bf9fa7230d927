import type { Cgroup } from '../cgroups/cgroup.ts';

export interface Container {
  /** Unique on this machine, `[a-z0-9-]`, at most 64 characters. Also the container's id for the runtime. */
  name: string;
  /** An existing directory for `config.json` and other files of the runtime. */
  bundleDir: string;
  /** The root filesystem, owned by the ids of the runtime. */
  rootDir: string;
  /**
   * The host ids of the container's users; the root filesystem is shifted to them. Absent: the ids of the
   * runtime, without a shift.
   */
  ids?: IdMapping;
  readOnlyRoot: boolean;
  /** Mounted read-only at `/run/cay`; holds `guest.sock`. */
  socketDir: string;
  /** Path of the guest binary on the host. */
  guestBinary: string;
  /** Host directories that the template mounts into the container, such as `/usr`. */
  binds: { source: string; target: string; readOnly: boolean }[];
  /** Volumes, memory and directories of the host. */
  mounts?: readonly ContainerMount[];
  cgroup: Cgroup;
  hostname: string;
  openFiles: number;
}

/** Something that is mounted beside the root filesystem. */
export type ContainerMount =
  | {
      kind: 'directory';
      /** On the host. */
      source: string;
      /** The directory below it that is mounted. No symlink is followed to it. */
      subpath?: string | undefined;
      target: string;
      readOnly: boolean;
      /** Its files are stored as those of the root filesystem, and shifted with them. */
      shifted: boolean;
      /** A missing subpath is made. */
      makes: boolean;
    }
  | { kind: 'tmpfs'; target: string; sizeBytes?: number | undefined; mode: string; noexec: boolean };

export interface RuntimeProbe {
  available: boolean;
  /** For example `runsc 20240729`. */
  version?: string;
  /** Why it is not available; `hint` says what to do about it. */
  reason?: string;
  hint?: string;
}

export type ContainerStatus = 'running' | 'stopped' | 'absent';

/**
 * A Runtime turns an OCI bundle into running, isolated processes: `runsc`, `crun` and `runc` through their
 * command lines, `process` without any isolation.
 *
 * **Terms.** A *container* is what the runtime starts: a root filesystem, a cgroup and the guest as the first
 * process. An *instance* (`host/instances`) is a container with its link to the guest. A *checkpoint image*
 * is the memory of a container on disk.
 *
 * **Who calls it, how often.** `host/instances` prepares everything (tree, cgroup, socket directory),
 * describes it as a `Container`, and calls `start` once for each start of a sandbox. From then on the
 * connection of the guest shows that the container lives; `status` is called only after that connection was
 * lost, and while the caller waits for it. `list` is called at startup and in each orphan sweep, `probe` at
 * startup. A container is found again by name after a restart of the server, because the runtime keeps its
 * state below `stateDir`. `start` spawns a process and is on the path of creating a sandbox; its cost is that
 * of the runtime's own command.
 *
 * **Concurrency.** Verbs on different containers run at once. The caller serialises the verbs on one
 * container, except `status`, which may run at any time. `status` during `capture` resolves `running`.
 *
 * **Network.** A container has a loopback interface and nothing else (`process` shares the host's network).
 * The guest reaches the server through the socket in `socketDir`.
 *
 * **Crashes.** `start` that was killed may leave a container; `remove` of its name removes it. `remove` may
 * be repeated, and needs no guest.
 *
 * **Errors.** `start` and `restore` reject `unavailable` with the words of the runtime and leave nothing
 * behind. `capture` rejects `resource_exhausted` if the disk is full, otherwise `unavailable`.
 *
 *     const probe = await runtime.probe();
 *     if (!probe.available) throw new CayError('failed_precondition', probe.reason!);
 *     await runtime.start({ name: 'i42', bundleDir, rootDir, socketDir, cgroup, … });
 *     await runtime.status('i42');                           // 'running'
 *     await runtime.checkpoints?.capture('i42', cgroup, {
 *       imageDir, goOn: true, whileStill: () => trees.commit('s1', 'i42'),
 *     });
 *     await runtime.remove('i42', cgroup);
 *     await runtime.status('i42');                           // 'absent'
 */
export interface Runtime {
  readonly name: string;
  /**
   * `kernel`: a kernel of its own between sandbox and host. `namespaces`: the host's kernel, with namespaces
   * and seccomp. `none`: no isolation.
   */
  readonly isolation: 'kernel' | 'namespaces' | 'none';
  /** The host ids that must own the root filesystem. */
  readonly ids: IdMapping;
  /**
   * The host's kernel sees the sandbox as one process with many threads, so it cannot kill a single process
   * that uses too much memory, nor limit the number of processes. The guest enforces both limits instead (see
   * the guest protocol).
   */
  readonly guestGuards: boolean;
  /** Its program: a path, or a name to look up in `PATH`. Absent where there is none. */
  readonly program?: string;
  /** Starts a small container to find out whether the runtime works here. The result is cached. */
  probe(): Promise<RuntimeProbe>;
  /**
   * Starts the container with the guest as its first process. Resolves when the runtime's command has
   * returned, which may be before or after the guest connects.
   */
  start(container: Container): Promise<void>;
  status(name: string): Promise<ContainerStatus>;
  /**
   * Gives a running container another hostname. Absent where the guest does that, and where the container has
   * the host's.
   */
  setHostname?(name: string, hostname: string): Promise<void>;
  /** Kills all processes and removes the runtime's state. Removing an absent container succeeds. */
  remove(name: string, cgroup: Cgroup): Promise<void>;
  /** Captures and restores memory. Absent where the runtime cannot. */
  readonly checkpoints?: Checkpoints;
  /** Names of all containers below this installation's state directory. */
  list(): Promise<string[]>;
}

/**
 * Memory images of containers. The caller captures a container only while it has no connection to the host
 * (see `GuestLink.quiesce`). Memory and tree are of the same moment: no process runs between the last byte of
 * memory and the copy of the files. Each call writes or reads the whole memory, so its cost grows with it.
 */
export interface Checkpoints {
  /**
   * Writes the container's memory to `imageDir`, an empty directory, then calls `whileStill` while all
   * processes are stopped and all their writes are in the tree. Afterwards the container continues if `goOn`
   * is true, and is killed otherwise. If it rejects, the container continues.
   */
  capture(
    name: string,
    cgroup: Cgroup,
    options: { imageDir: string; goOn: boolean; whileStill(): Promise<void> },
  ): Promise<void>;
  /** Like `start`, with the processes of an image. The tree is the one committed with it, or a copy. */
  restore(container: Container, imageDir: string): Promise<void>;
  /** Continues a container that an interrupted capture left stopped. Does nothing if it runs. */
  release(name: string): Promise<void>;
  /**
   * Identifies what a restore depends on, such as the build of the runtime and the processor. An image can be
   * restored where this text equals the one of its capture.
   */
  compatibility(): Promise<string>;
}

/** The range of host ids that root and the other users of a sandbox are mapped to. */
export interface IdMapping {
  hostId: number;
  size: number;
}
