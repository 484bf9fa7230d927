/**
 * BucketMounts: buckets as directories of sandboxes. The files are on no disk: each call of a program becomes
 * requests to the bucket.
 *
 * *Terms.* A *mount* belongs to one instance of a sandbox, and has a directory with its state. A *pump* is the program
 * that holds it in the kernel (`guest/src/bucket_mount/`). It outlives this server, and dials the next one.
 *
 * *Who calls.* A backend, before it starts an instance and after it has ended. It knows neither buckets nor keys: who
 * opens buckets is told by the control plane (`BucketOpening`).
 *
 * *Crashes.* What was written and is not in the bucket is in the directory of the mount. The next server takes it up
 * when the pump dials, or at `end`.
 *
 * *Errors.* `begin` rejects as the bucket does (`not_found`, `permission_denied`, `unavailable`), and `unavailable` where
 * FUSE does not work. What programs do with a mount gets error numbers, and is never an error here.
 *
 *     const at = await mounts.begin(directory, { sandbox, bucket: 'data', readOnly: true, … });
 *     …                                    // the instance runs with `at` mounted in it
 *     await mounts.end(directory);         // writes what is left, and reports what cannot be written
 */
import type { SandboxId } from '@cay/sdk/protocol';
import { z } from 'zod';
import type { Bucket } from '../s3/bucket.ts';

/** What a mount is, as its directory remembers it. */
export const BucketMountFactsSchema = z.object({
  sandbox: z.string().transform((id) => id as SandboxId),
  bucket: z.string(),
  /** Below the bucket's own prefix. Absent: all of it. */
  prefix: z.string().optional(),
  /** Where the sandbox has it, for reports. */
  path: z.string(),
  readOnly: z.boolean(),
  /** Whose files they seem to be, by ids of the host. */
  owner: z.object({ uid: z.int(), gid: z.int() }),
});
export type BucketMountFacts = z.infer<typeof BucketMountFactsSchema>;

export interface BucketSource {
  /** Opens a bucket of the sandbox's project. The caller closes it. */
  open(sandbox: SandboxId, name: string): Promise<{ bucket: Bucket; readOnly: boolean }>;
  /** What programs have written could not be put there: for now, or `lost` for ever. */
  failed(mount: BucketMountFacts, failure: { key: string; error: unknown; lost: boolean }): void;
}

/** Where the control plane says who opens buckets, when it has begun. Until then calls of programs wait. */
export interface BucketOpening {
  source?: BucketSource | undefined;
}

export interface BucketMounts {
  /** Why nothing can be mounted here, if so. */
  why(): string | undefined;
  /** Mounts it below that directory, which it makes, and resolves its path. */
  begin(directory: string, facts: BucketMountFacts): Promise<string>;
  /** Also one that is half made, or of an earlier server. Removes the directory. */
  end(directory: string): Promise<void>;
  /** Lets pumps wait for the next server. */
  close(): Promise<void>;
}
