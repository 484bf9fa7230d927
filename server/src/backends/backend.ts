/**
 * A Backend makes sandboxes somewhere: on this machine, in Docker, on a cluster, in this process.
 *
 * The control plane decides *that* a sandbox exists: it owns ids, records, expiry, quotas and who
 * may do what. A backend owns the objects that make one real (containers, cgroups, disks, pods)
 * and nothing else; it keeps what it must know to find them again beside them, never in the
 * control plane's records.
 *
 * Every verb is idempotent, because the control plane repeats its last step after a crash:
 * `ensure` of what exists and `remove` of what does not are both done, not errors. The control
 * plane never runs two verbs for one id at the same time; different ids run side by side.
 *
 * A sandbox that was stopped and ensured again keeps its id and its files, but is another
 * *incarnation*: its processes, its guest connection and its counters are new. An incarnation's
 * number only grows.
 *
 * What a backend cannot do its capabilities say, and `validate` refuses with `unsupported`
 * before anything is made. Abilities that not every backend has are the small interfaces at the
 * end of this file; `capabilities()` tells whether a backend has them.
 */
import {
  isCayError,
  type Capabilities,
  type CayError,
  type FileChange,
  type Limits,
  type MemoryDropped,
  type SandboxId,
  type SandboxSpec,
  type SnapshotId,
  type Stats,
} from '@cay/sdk/protocol';
import type { Guest } from '../guest/guest.ts';

export interface CallOptions {
  signal?: AbortSignal;
}

export interface EnsureOptions extends CallOptions {
  /**
   * Whose sandbox it is, always the same for one id. A backend may keep the sandboxes of projects apart by
   * it, and must not need it.
   */
  project?: string;
}

/** Where a sandbox stands. */
export type Phase =
  /** The backend knows nothing of it. */
  | 'absent'
  /** It is being made; the guest has not answered yet. */
  | 'starting'
  /** The guest has answered. */
  | 'ready'
  /** It was stopped; its files are kept. */
  | 'stopped'
  /** Its processes are on disk and its files are kept; `ensure` lets it go on where it was. */
  | 'hibernated'
  /** It ended by itself, or could not be made. `reason` tells why. */
  | 'failed';

export type FailureReason =
  | 'oom_killed'
  | 'crashed'
  | 'start_failed'
  | 'host_restarted'
  | 'removed_outside'
  /**
   * It has written more than its limit, where the platform ends a sandbox for that and cannot refuse the write.
   */
  | 'disk_full';

export interface Observation {
  id: SandboxId;
  phase: Phase;
  /** 0 while absent, then 1 and up. */
  incarnation: number;
  /**
   * What the platform that it stands on calls this incarnation: the uid of an object of a cluster, the id of a
   * container. Never that of another sandbox, nor of one of the same id that was removed before. Absent where
   * the platform has no such name, or nothing stands on it.
   */
  uid?: string;
  /** Which isolation it really has; absent while it has none. */
  runtime?: string;
  /** It is ready, and its processes do not run. */
  frozen?: boolean;
  /** It is stopped because it was suspended. */
  suspended?: boolean;
  /** Set when the phase is `failed`. */
  reason?: FailureReason;
  message?: string;
  /** What its processes take on disk while it is hibernated, if that is known. */
  imageBytes?: number;
}

export interface StopOptions extends CallOptions {
  /** How long processes have between SIGTERM and SIGKILL. Default 10,000. */
  graceMs?: number;
}

export interface Backend {
  readonly name: string;

  /** Wired and verified on this machine, never hoped. May be slow the first time. */
  capabilities(options?: CallOptions): Promise<Capabilities>;

  /**
   * Says what this backend cannot honour, or what the operator does not allow, before anything is made.
   * Rejects `invalid_argument`, `not_found` (template or runtime), `permission_denied` or `unsupported`.
   */
  validate(spec: SandboxSpec, options?: CallOptions): Promise<void>;

  /**
   * Makes the sandbox run, and resolves when its guest has answered.
   *
   * Absent or stopped or failed: it is started, with the files it had. Hibernated: it goes on. Ready: nothing
   * happens. Rejects `already_exists` if the sandbox was made from a different spec (limits apart: those
   * change by `resize`, and one that is started anew gets those of the spec, its disk excepted, where the
   * platform can change them). When it rejects, whatever it had begun is undone: a sandbox that was absent is
   * absent again.
   */
  ensure(id: SandboxId, spec: SandboxSpec, options?: EnsureOptions): Promise<Observation>;

  /** A condition with a reason; absent is an answer. Never rejects because of the sandbox's state. */
  observe(id: SandboxId, options?: CallOptions): Promise<Observation>;

  /** All sandboxes that this backend has, in no order. */
  list(options?: CallOptions): Promise<Observation[]>;

  /** Every change of a sandbox's phase from now on, those the backend did not cause included. */
  watch(options?: CallOptions): AsyncIterable<Observation>;

  /** The running sandbox's guest. Rejects `not_found`, or `failed_precondition` unless ready. */
  connect(id: SandboxId, options?: CallOptions): Promise<Guest>;

  /** Rejects `not_found`, or `failed_precondition` unless ready. */
  stats(id: SandboxId, options?: CallOptions): Promise<Stats>;

  /** Ends every process, gracefully and then by force; keeps the files. Rejects `not_found`. */
  stop(id: SandboxId, options?: StopOptions): Promise<Observation>;

  /** Ends it and removes all that it had. Absent is done. */
  remove(id: SandboxId, options?: CallOptions): Promise<void>;

  /** Lets go of every sandbox and destroys none of those that survive a restart. */
  close(): Promise<void>;
}

/** Changes limits while the sandbox runs. A backend has it if it can `resize`. */
export interface Resizing {
  /**
   * Applies the limits that are given, up or down. Rejects `failed_precondition` if more is in use than would
   * be allowed.
   */
  resize(
    id: SandboxId,
    limits: Partial<Pick<Limits, 'cpus' | 'memoryBytes' | 'pids' | 'diskBytes'>>,
    options?: CallOptions,
  ): Promise<void>;
}

/** Stops the sandbox's processes from being scheduled at all, and lets them go on. */
export interface Freezing {
  freeze(id: SandboxId, options?: CallOptions): Promise<void>;
  thaw(id: SandboxId, options?: CallOptions): Promise<void>;
}

/** Gives back all that a sandbox takes but its files. A backend has it if it can `suspend`. */
export interface Suspending {
  /**
   * Ready or frozen becomes stopped, and is told as `suspended` until it is ensured or stopped; its processes
   * are ended as `stop` does it. Suspended is done. Rejects `failed_precondition` in any other phase.
   */
  suspend(id: SandboxId, options?: StopOptions): Promise<Observation>;
}

/** A snapshot as its backend has it. */
export interface SnapshotFacts {
  id: SnapshotId;
  /** The sandbox that it was taken of. */
  sandbox: SandboxId;
  spec: SandboxSpec;
  /** Whether processes are in it too, and then of which isolation. */
  memory: boolean;
  runtime?: string;
  /**
   * What its files take on disk beyond what was kept of its sandbox before, and what its processes take.
   * Absent if not known.
   */
  fileBytes?: number;
  memoryBytes?: number;
  /** Why the memory of the archive that it came in as was left out. */
  memoryDropped?: MemoryDropped;
}

/** Says with a key of the installation that an archive of this digest is one of its own. */
export interface ArchiveSeal {
  sign(digest: string): string;
  verify(digest: string, signature: string): boolean;
}

export interface ImportOptions extends CallOptions {
  /** Which of several platforms takes it in. */
  platform?: string | undefined;
  /** Whose memory is taken in: that of archives which it has signed. Without it none is. */
  seal?: ArchiveSeal;
  /** Takes in the memory of any archive. It is given to the runtime as it is. */
  foreignMemory?: boolean;
  /** Called before so many bytes are written. What it throws ends the import, and nothing of it stays. */
  admit?(bytes: number): void;
}

/**
 * The files of a snapshot. Nothing changes underneath a reader; a snapshot that is being read can still be
 * removed.
 */
export interface SnapshotFiles {
  /**
   * Content of a regular file, or the target of a symlink. Rejects `not_found`, `failed_precondition` for
   * anything else.
   */
  read(path: string, options?: CallOptions): AsyncIterable<Uint8Array>;
  /** These paths and all below them as a tar stream (POSIX pax). Rejects `not_found`. */
  tar(paths: string[], options?: CallOptions): AsyncIterable<Uint8Array>;
}

/**
 * Keeps what a sandbox was, and makes sandboxes that start from there. A backend has it if it can do
 * `snapshots`; `memory` is `unsupported` unless the sandbox's runtime can.
 *
 * Snapshots outlive the sandbox that they were taken of. The control plane chooses their ids, and
 * orders the verbs of one sandbox as it does all others.
 */
export interface Snapshotting {
  /**
   * Keeps the sandbox as it is now. One that runs goes on, and stands still only while it is captured; one
   * that is stopped or failed has files only, a hibernated one also its memory. All or nothing; the same id
   * from the same sandbox is done already. Rejects `not_found`, `failed_precondition` (no memory to keep),
   * `unsupported`, `resource_exhausted`.
   */
  snapshot(
    id: SandboxId,
    snapshot: SnapshotId,
    options?: CallOptions & { memory?: boolean },
  ): Promise<SnapshotFacts>;

  snapshots(options?: CallOptions): Promise<SnapshotFacts[]>;

  /** Absent is done. Rejects `failed_precondition` with `details.sandboxes` while sandboxes stand on it. */
  removeSnapshot(snapshot: SnapshotId, options?: CallOptions): Promise<void>;

  /**
   * Makes a sandbox that has the snapshot's files: stopped, or hibernated with `memory`; `ensure` makes it
   * run. The same id from the same snapshot is done already. Memory that cannot go on here (another runtime
   * version, another processor) rejects `failed_precondition` with `details.reason` `checkpoint_mismatch`,
   * and files alone still can.
   */
  clone(
    id: SandboxId,
    spec: SandboxSpec,
    snapshot: SnapshotId,
    options?: CallOptions & { memory?: boolean },
  ): Promise<Observation>;

  /**
   * Puts the sandbox to where the snapshot is. One that was ready or frozen is ready afterwards, as another
   * incarnation; any other is stopped, or hibernated with `memory`. What it was before is gone, so the caller
   * keeps it first. When it rejects the sandbox is as it was, its processes included.
   */
  rollback(
    id: SandboxId,
    snapshot: SnapshotId,
    options?: CallOptions & { memory?: boolean },
  ): Promise<Observation>;

  /** What differs, in the order of paths; a directory that was moved is one entry. */
  changes(from: SnapshotId, to: SnapshotId, options?: CallOptions): AsyncIterable<FileChange>;

  snapshotFiles(snapshot: SnapshotId): SnapshotFiles;

  /** The snapshot as one portable archive that any backend of any machine can take in, signed by the seal. */
  exportSnapshot(
    snapshot: SnapshotId,
    options?: CallOptions & { seal?: ArchiveSeal },
  ): AsyncIterable<Uint8Array>;

  /**
   * Takes an archive in, whole or not at all. Memory that nobody vouches for is left out, and the facts say
   * so. Rejects `invalid_argument` for one that is damaged.
   */
  importSnapshot(
    snapshot: SnapshotId,
    archive: AsyncIterable<Uint8Array>,
    options?: ImportOptions,
  ): Promise<SnapshotFacts>;

  /** What its files can take on disk at most by now, where that is cheap to tell. */
  fileBytes?(snapshot: SnapshotId): Promise<number | undefined>;
}

/** Puts a sandbox's memory on disk. A backend has it if it can do `memorySnapshots`. */
export interface Hibernating {
  /**
   * Ready or frozen becomes hibernated; `ensure` reverses it. Hibernated is done. When it rejects the sandbox
   * is as it was. Rejects `unsupported` if its runtime cannot, `failed_precondition` in any other phase.
   */
  hibernate(id: SandboxId, options?: CallOptions): Promise<Observation>;
}

/** What is left of something that all sandboxes share. `total` counts what others use as well. */
export interface Capacity {
  totalBytes: number;
  freeBytes: number;
}

/** Says how much room there is on the platform that its sandboxes stand on. */
export interface Measuring {
  /**
   * `pids` counts processes and threads. What does not exist as a bound is absent. `pool` counts the
   * sandboxes that are kept ready for the next create.
   */
  capacity(options?: CallOptions): Promise<{
    memory?: Capacity;
    disk?: Capacity;
    pids?: { total: number; free: number };
    pool?: { ready: number; wanted: number };
  }>;
}

/** What is on the platform and belongs to nobody, by kind and by the name that it has there. */
export interface Orphan {
  kind:
    | 'instance'
    | 'container'
    | 'cgroup'
    | 'tree'
    | 'snapshot_tree'
    | 'image'
    | 'snapshot'
    | 'temporary_file'
    | 'sandbox'
    | 'pod'
    | 'volume_claim'
    | 'warm_pool';
  name: string;
}

/** Looks for what was left behind, and takes it away. */
export interface Sweeping {
  /**
   * Safe at any time, whatever is being made meanwhile. Resolves what was found, and with `dryRun` leaves it
   * there.
   */
  sweep(options?: CallOptions & { dryRun?: boolean }): Promise<Orphan[]>;
}

/**
 * Is several backends at once: named platforms, of which each sandbox is on one and stays there. A spec says
 * by `platform` on which; one that says nothing means the default. Snapshots are on the platform of their
 * sandbox, and so is what is made of them.
 *
 * A platform may be away. What is on it is then neither absent nor failed: whatever is asked of it rejects
 * `unavailable`, and so does whatever is asked about an id of which nobody has said where it is. The others
 * go on. A verb that a sandbox's platform does not have rejects `unsupported`, naming the platform.
 */
export interface Routing {
  /** Their names, the default first. */
  readonly platforms: readonly string[];

  /** The platform that is meant by this name or these labels. Throws `not_found` for a name that is none. */
  choose(wish: { platform?: string; labels: Readonly<Record<string, string>> }): string;

  /**
   * The backend that the platform is. Rejects `unavailable` while it cannot be opened, `not_found` for a name
   * that is none.
   */
  platform(name: string): Promise<Backend>;

  /**
   * Tells where a sandbox or snapshot is that an earlier server has made: the records know, and the platform
   * may be away.
   */
  place(id: SandboxId | SnapshotId, platform: string): void;

  /** Whether what is left on this platform is a part of what `capacity` tells. */
  measures(platform: string): boolean;
}

/** Whether somebody did not answer, which says nothing of what was asked about. */
export function isAway(error: unknown): error is CayError {
  return isCayError(error, 'unavailable') || isCayError(error, 'deadline_exceeded');
}

export function canResize(backend: Backend): backend is Backend & Resizing {
  return 'resize' in backend;
}

export function canFreeze(backend: Backend): backend is Backend & Freezing {
  return 'freeze' in backend;
}

export function canSuspend(backend: Backend): backend is Backend & Suspending {
  return 'suspend' in backend;
}

export function canSnapshot(backend: Backend): backend is Backend & Snapshotting {
  return 'snapshot' in backend;
}

export function canHibernate(backend: Backend): backend is Backend & Hibernating {
  return 'hibernate' in backend;
}

export function canMeasure(backend: Backend): backend is Backend & Measuring {
  return 'capacity' in backend;
}

export function canSweep(backend: Backend): backend is Backend & Sweeping {
  return 'sweep' in backend;
}

export function canRoute(backend: Backend): backend is Backend & Routing {
  return 'platforms' in backend;
}
