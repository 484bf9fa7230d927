/**
 * A Runtime turns an OCI bundle into running, isolated processes: `runsc`, `crun` and `runc` by
 * their command lines, `process` without any isolation.
 *
 * The engine prepares everything beforehand (tree, cgroup, socket directory) and describes it as a
 * Container. The runtime starts it; from then on the guest's dialling in is the sign of life, and
 * the runtime is asked again only when something ended. Containers are found again by name after
 * the server was restarted, because the runtime keeps its own state below `stateDir`.
 */
import type { Cgroup } from '../cgroups/cgroup.ts';

export interface Container {
  /** Unique on this machine, `[a-z0-9-]`, at most 64 characters. Also the container's id for the runtime. */
  name: string;
  /** A directory for `config.json` and whatever else the runtime wants beside it. Exists. */
  bundleDir: string;
  /** The root filesystem, owned by the ids of the runtime. */
  rootDir: string;
  /**
   * The ids that its users have on the host, to which the root filesystem is shifted. Absent: those of the
   * runtime, as they are.
   */
  ids?: IdMapping;
  readOnlyRoot: boolean;
  /** Appears read-only as `/run/cay`; has `guest.sock`. */
  socketDir: string;
  /** The guest's binary on the host. */
  guestBinary: string;
  /** Host directories that the template shows inside, such as `/usr`. */
  binds: { source: string; target: string; readOnly: boolean }[];
  cgroup: Cgroup;
  hostname: string;
  openFiles: number;
}

export interface RuntimeProbe {
  available: boolean;
  /** For example `runsc 20240729`. */
  version?: string;
  /** Why it is not available, and what mends that. */
  reason?: string;
  hint?: string;
}

export type ContainerStatus = 'running' | 'stopped' | 'absent';

export interface Runtime {
  readonly name: string;
  /**
   * `kernel`: its own kernel between sandbox and host. `namespaces`: the host's kernel, walled. `none`:
   * nothing.
   */
  readonly isolation: 'kernel' | 'namespaces' | 'none';
  /** The ids that a tree has to belong to. */
  readonly ids: IdMapping;
  /**
   * To the host's kernel the sandbox is one process with many threads: it cannot end a greedy process
   * or refuse one too many by itself, so the guest guards memory and processes (see the guest protocol).
   */
  readonly guestGuards: boolean;
  /** Really starts something small, once; remembered afterwards. */
  probe(): Promise<RuntimeProbe>;
  /**
   * Starts the container with the guest as its first process. Resolves when the runtime has handed
   * over, which may be before or after the guest dials. Rejects `unavailable` with the runtime's own
   * words, and then leaves nothing behind.
   */
  start(container: Container): Promise<void>;
  status(name: string): Promise<ContainerStatus>;
  /** Kills what runs and removes the runtime's own traces. Absent is done. */
  remove(name: string, cgroup: Cgroup): Promise<void>;
  /** Keeps and revives processes. Absent where the runtime cannot. */
  readonly checkpoints?: Checkpoints;
  /** Names of all containers below this installation's state directory. */
  list(): Promise<string[]>;
}

/**
 * Processes on disk. A container is captured while it holds no connection to the host, which the engine sees
 * to, and together with its tree: between the last byte of memory and the copy of the files nothing inside
 * runs.
 */
export interface Checkpoints {
  /**
   * Writes the container's memory to `imageDir`, which exists and is empty, then calls `whileStill` while
   * everything inside stands still and all it has written is in its tree. After that the container goes on if
   * `goOn`, and is ended otherwise. Rejects `unavailable` with the runtime's own words; the container then
   * goes on.
   */
  capture(
    name: string,
    cgroup: Cgroup,
    options: { imageDir: string; goOn: boolean; whileStill(): Promise<void> },
  ): Promise<void>;
  /**
   * Like `start`, with the processes of an image. The tree is the one of the same moment, or a clone of it.
   */
  restore(container: Container, imageDir: string): Promise<void>;
  /** Lets a container go on that a capture cut short has left standing still. One that runs is done. */
  release(name: string): Promise<void>;
  /**
   * What an image needs to be revived: equal text on both sides means that it can be. For example runtime
   * build and processor.
   */
  compatibility(): Promise<string>;
}

/** The ids that root and all other users of a sandbox have on the host. */
export interface IdMapping {
  hostId: number;
  size: number;
}
