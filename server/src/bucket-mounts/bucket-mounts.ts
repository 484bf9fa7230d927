/**
 * BucketMounts: buckets as directories of sandboxes. The files are on no disk: each call of a program becomes
 * requests to the bucket.
 *
 * *Terms.* A *mount* belongs to one instance of a sandbox, and has a directory with its state. A *pump* is
 * the program that holds it in the kernel (`guest/src/bucket_mount/`). It outlives this server, and dials the
 * next one. A file is *unwritten* while the bucket lacks what a program has put into it.
 *
 * *Who calls.* A backend: `begin` before it starts an instance, `end` after the instance has ended. It knows
 * neither buckets nor keys: the control plane opens buckets for it (`BucketSource`). The control plane calls
 * `write` before a sandbox ends, and `states`, `giveUp` and `used` for clients.
 *
 * *Concurrency.* Any verbs may run at once. `begin` and `end` of one directory follow one another.
 *
 * *Crashes.* What was written and is not in the bucket is in the directory of the mount. The next server
 * takes it up when the pump dials, or at `end`. What cannot be written at the end stays on disk, and is tried
 * again until the bucket has it or somebody gives it up.
 *
 * *Errors.* `begin` rejects as the bucket does (`not_found`, `permission_denied`, `unavailable`),
 * `resource_exhausted` beyond the project's quota of mounts, and `unavailable` where FUSE does not work, or
 * where files of an earlier instance are unwritten. What programs do with a mount gets error numbers, and is
 * never an error here.
 *
 * *Cost.* `begin` starts a process and asks the bucket for a listing. A call of a program costs what the
 * caches lack (`block-cache.ts`, `listings.ts`): nothing, or a request. `end` takes as long as unwritten
 * files take.
 *
 *     const at = await mounts.begin(directory, { sandbox, bucket: 'data', readOnly: true, … });
 *     …                                    // the instance runs with `at` mounted in it
 *     await mounts.end(directory);         // writes what is left, and keeps what cannot be written
 */
import type { SandboxId } from '@cay/sdk/protocol';
import { z } from 'zod';
import type { Bucket } from '../s3/bucket.ts';

/** What a mount is, as its directory remembers it. */
export const BucketMountFactsSchema = z.object({
  sandbox: z.string().transform((id) => id as SandboxId),
  /** Known once it was opened: the sandbox may be gone when its last files are written. */
  project: z.string().optional(),
  bucket: z.string(),
  /** Below the bucket's own prefix. Absent: all of it. */
  prefix: z.string().optional(),
  /** Where the sandbox has it, for reports. */
  path: z.string(),
  readOnly: z.boolean(),
  /** Whose files they seem to be, by ids of the host. */
  owner: z.object({ uid: z.int(), gid: z.int() }),
  /** A kernel of its own serves the sandbox, and may keep files open that programs have closed. */
  closesLate: z.boolean().optional(),
});
export type BucketMountFacts = z.infer<typeof BucketMountFactsSchema>;

/** What a project may have of mounts. */
export interface MountBounds {
  project: string;
  /** Throws `resource_exhausted` for one more. */
  requireMount(open: number): void;
  /** Throws `resource_exhausted` for so many more bytes of unwritten files. */
  requireBytes(used: number, asked: number): void;
}

/** Opens buckets for mounts. The control plane implements it. */
export interface BucketSource {
  /** Opens a bucket of the sandbox's project. The caller closes it. */
  open(
    mount: Pick<BucketMountFacts, 'sandbox' | 'project' | 'bucket'>,
  ): Promise<{ bucket: Bucket; readOnly: boolean; bounds: MountBounds }>;
  /** What programs have written could not be put there: for now, or `lost` for ever. */
  failed(mount: BucketMountFacts, failure: { key: string; error: unknown; lost: boolean }): void;
}

/**
 * Connects the backend, which opens first, with the control plane. The backend sets `mounts` when it opens,
 * and the control plane sets `source` when it opens. Until then calls of programs wait.
 */
export interface BucketOpening {
  source?: BucketSource | undefined;
  mounts?: BucketMounts | undefined;
}

/** A mount, and which of its files the bucket lacks. */
export interface MountState {
  facts: BucketMountFacts;
  /** Its instance has ended, and what it has left is tried again and again. */
  ended: boolean;
  unwritten: Unwritten[];
}

/** A file that the bucket lacks. */
export interface Unwritten {
  bucket: string;
  /** Where the sandbox has the mount. */
  path: string;
  /** Below the prefix of the mount. */
  key: string;
  sizeBytes: number;
  /** Why the latest attempt failed. Absent: there was none. */
  failure?: unknown;
}

export interface BucketMounts {
  /** Why nothing can be mounted here, if so, as far as is known without a try. */
  why(): string | undefined;
  /** The same, by a try: something is mounted, read, written and unmounted, once. */
  probe(): Promise<string | undefined>;
  /** Mounts it below that directory, which it makes, and resolves its path. */
  begin(directory: string, facts: BucketMountFacts): Promise<string>;
  /**
   * Also one that is half made, or of an earlier server. Removes the directory. Keeps unwritten files
   * elsewhere.
   */
  end(directory: string): Promise<void>;
  /**
   * Gives buckets what a sandbox has written, also what its programs have open, and what its earlier
   * instances have left. Resolves what is unwritten after so long.
   */
  write(sandbox: SandboxId, patienceMs: number): Promise<Unwritten[]>;
  states(sandbox: SandboxId): Promise<MountState[]>;
  /** Drops what its earlier instances have left. */
  giveUp(sandbox: SandboxId): Promise<void>;
  /** What a project uses of this server. */
  used(project: string): { mounts: number; bytes: number };
  /** Lets pumps wait for the next server. */
  close(): Promise<void>;
}
