import type { FileChange, MemoryDropped, SandboxId, SandboxSpec, SnapshotId } from '@cay/sdk/protocol';
import type { CallScope, Observation } from '../backend.ts';

/** A snapshot as its backend knows it. */
export interface SnapshotFacts {
  id: SnapshotId;
  /** The sandbox that it was taken of. */
  sandbox: SandboxId;
  spec: SandboxSpec;
  /** Whether it has a memory image, and then of which runtime. */
  memory: boolean;
  runtime?: string;
  /**
   * Bytes on disk that its files add to earlier snapshots of the same sandbox, and bytes of its memory image.
   * Absent if unknown.
   */
  fileBytes?: number;
  memoryBytes?: number;
  /** Why the import of its archive left out the memory. */
  memoryDropped?: MemoryDropped;
}

/** Signs the digest of an archive with a key of this installation, and recognises such a signature. */
export interface ArchiveSeal {
  sign(digest: string): string;
  verify(digest: string, signature: string): boolean;
}

export interface ImportOptions extends CallScope {
  /** The platform that imports it, where there are several. */
  platform?: string | undefined;
  /** Memory is imported only from archives that this seal has signed. Without a seal none is. */
  seal?: ArchiveSeal;
  /** Imports memory without a known signature too. It goes to the runtime unchecked. */
  foreignMemory?: boolean;
  /** Called before so many bytes are written. If it throws, the import ends and leaves nothing behind. */
  admit?(bytes: number): void | Promise<void>;
}

export interface MemoryOptions extends CallScope {
  /** With the processes, not the files alone. */
  memory?: boolean;
}

export interface CloneOptions extends MemoryOptions {
  /** Resolves when the guest of the new sandbox has answered, as `ensure` does. */
  start?: boolean;
}

/** The files of one snapshot. They never change; a snapshot can be removed while it is read. */
export interface SnapshotFiles {
  /**
   * Content of a regular file, or the target of a symlink. Rejects `not_found`, or `failed_precondition` for
   * anything else.
   */
  read(path: string, scope?: CallScope): AsyncIterable<Uint8Array>;
  /** These paths and everything below them as a tar stream (POSIX pax). Rejects `not_found`. */
  tar(paths: string[], scope?: CallScope): AsyncIterable<Uint8Array>;
}

/**
 * Keeps the state of a sandbox and makes sandboxes that start from it.
 *
 * Snapshots outlive the sandbox that they were taken of. The control plane chooses their ids and never runs
 * two verbs for one sandbox at the same time. `memory: true` rejects `unsupported` where the sandbox's
 * runtime has no checkpoints.
 *
 * Cost: `snapshot` and `clone` of files share blocks with their source and take milliseconds whatever their
 * size. With memory they take as long as the image takes to write or read.
 */
export interface Snapshotting {
  /**
   * Keeps the sandbox as it is now. A running sandbox is paused only during the capture. A stopped or failed
   * sandbox has files only, a hibernated sandbox also its memory. All or nothing; the same id of the same
   * sandbox resolves with what exists. Rejects `not_found`, `failed_precondition` (no memory to keep),
   * `unsupported`, `resource_exhausted`.
   */
  snapshot(id: SandboxId, snapshot: SnapshotId, options?: MemoryOptions): Promise<SnapshotFacts>;

  /** Every snapshot that is complete, in no order. */
  snapshots(scope?: CallScope): Promise<SnapshotFacts[]>;

  /**
   * An absent snapshot is done. Rejects `failed_precondition` with `details.sandboxes` while the trees of
   * sandboxes depend on it.
   */
  removeSnapshot(snapshot: SnapshotId, scope?: CallScope): Promise<void>;

  /**
   * Makes a sandbox from a snapshot. Without `start` it is `stopped`, or `hibernated` with `memory`, and
   * `ensure` starts it. With `start` it is ready when this resolves, in one step: the driver records it once
   * before and once after, and a crash in between leaves it absent.
   *
   * An id that exists already from the same snapshot and spec is left as it is, or started with `start`; any
   * other rejects `already_exists`. Memory that cannot be restored here (another runtime version, another
   * processor) rejects `failed_precondition` with `details.reason` `checkpoint_mismatch`; files alone still
   * can. When it rejects, a sandbox that was absent is absent again.
   */
  clone(id: SandboxId, spec: SandboxSpec, snapshot: SnapshotId, options?: CloneOptions): Promise<Observation>;

  /**
   * Puts the sandbox back to the snapshot. A ready or frozen sandbox is ready afterwards, as another
   * incarnation; any other is stopped, or hibernated with `memory`. Its former state is lost, so the caller
   * takes a snapshot first. When it rejects the sandbox is as it was, its processes included.
   */
  rollback(id: SandboxId, snapshot: SnapshotId, options?: MemoryOptions): Promise<Observation>;

  /** The differences in the order of paths; a directory that was moved is one entry. */
  changes(from: SnapshotId, to: SnapshotId, scope?: CallScope): AsyncIterable<FileChange>;

  snapshotFiles(snapshot: SnapshotId): SnapshotFiles;

  /**
   * The snapshot as one archive, signed by the seal. The format is that of `host/archives/envelope.ts`, so
   * that other backends import the files; memory goes on under the runtime that wrote it alone.
   */
  exportSnapshot(
    snapshot: SnapshotId,
    options?: CallScope & { seal?: ArchiveSeal },
  ): AsyncIterable<Uint8Array>;

  /**
   * Imports an archive completely or not at all. Memory without a known signature is left out, and
   * `memoryDropped` says so. Rejects `invalid_argument` for an archive that is damaged or of an unknown
   * format.
   */
  importSnapshot(
    snapshot: SnapshotId,
    archive: AsyncIterable<Uint8Array>,
    options?: ImportOptions,
  ): Promise<SnapshotFacts>;

  /** Upper bound of what its files take on disk by now, where that is cheap to read. */
  fileBytes?(snapshot: SnapshotId): Promise<number | undefined>;
}
