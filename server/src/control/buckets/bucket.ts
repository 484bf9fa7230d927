/**
 * Buckets of projects as callers of the control plane see them: places on S3 servers that files of sandboxes
 * come from and go to.
 *
 * *Who calls.* The REST API, once for each request. What a sandbox has as a sync or a mount is written by the
 * control plane itself, at turns and before the sandbox ends (`syncing.ts`, `mount-writes.ts`).
 *
 * *Terms.* A *copy* is made when it is asked for: `import` makes files of objects, `export` objects of files.
 * A *sync* belongs to a sandbox: objects become files before it starts, and files that changed become objects
 * at every turn and before it is stopped or removed. Its *base* is what both sides had in common the last
 * time.
 *
 * *Credentials* are secrets of the project. They are opened for each transfer, used by the server alone, and
 * never are in a sandbox, an answer, an event or an error.
 *
 * *Endpoints* are chosen by tenants. Addresses of this machine and of private networks are refused unless the
 * operator names the endpoint.
 *
 * *Failures* reject the call that caused them, and stay with the sandbox (`syncs`) and in its events. A
 * sandbox whose changes cannot be written is neither stopped nor removed: `detach` gives the changes up.
 *
 * *Concurrency.* Transfers of one sandbox and bucket may run at once: the later write of a file counts.
 *
 * *Errors.* Those of `s3/bucket.ts` and of the guest's files, `resource_exhausted` beyond the quota,
 * `not_found` and `failed_precondition` as each verb says.
 *
 * *Bounds.* Each project runs two transfers at once, the server sixteen; a transfer has at most 200,000
 * files, and two hours.
 *
 *     const request = CreateBucketSchema.parse({ name: 'data', bucket: 'team-data', … });
 *     await buckets.create(me, request);
 *     await buckets.import(me, 'data', { sandbox: 'box', path: '/home/user/in', prefix: 'inputs' });
 *     await buckets.export(me, 'data', { sandbox: 'box', path: '/home/user/out', prefix: 'results' });
 */
import type {
  BucketInfo,
  Copy,
  CreateBucket,
  ObjectList,
  SignedObject,
  SyncStates,
  Transfer,
} from '@cay/sdk/protocol';
import type { z } from 'zod';
import type { ListObjectsSchema, SignObjectSchema } from '@cay/sdk/protocol';
import type { Principal } from '../tenants/principal.ts';

interface CallOptions {
  signal?: AbortSignal;
}

export interface BucketVerbs {
  /** Asks the server for the bucket first, and rejects as it does. */
  create(principal: Principal, request: CreateBucket, options?: CallOptions): Promise<BucketInfo>;
  /** By name. */
  list(principal: Principal): Promise<BucketInfo[]>;
  get(principal: Principal, name: string): Promise<BucketInfo>;
  /** Forgets it; its objects stay. Rejects `failed_precondition` while a sandbox has a copy. */
  remove(principal: Principal, name: string): Promise<void>;
  objects(
    principal: Principal,
    name: string,
    query: z.output<typeof ListObjectsSchema>,
    options?: CallOptions,
  ): Promise<ObjectList>;
  /** Objects become files. What is there under other names stays. */
  import(principal: Principal, name: string, copy: Copy, options?: CallOptions): Promise<Transfer>;
  /** Files become objects. What is there under other keys stays. */
  export(principal: Principal, name: string, copy: Copy, options?: CallOptions): Promise<Transfer>;
  sign(principal: Principal, name: string, request: z.output<typeof SignObjectSchema>): Promise<SignedObject>;
  /** The buckets that a sandbox has copies of, and those that it mounts. */
  syncs(principal: Principal, sandbox: string): Promise<SyncStates>;
  /**
   * Writes what changed in the sandbox now. Rejects `failed_precondition` for copies unless it runs or is
   * paused, and `unavailable` with what of a mount is not written within half a minute.
   */
  sync(principal: Principal, sandbox: string): Promise<SyncStates>;
  /** The sandbox keeps the files, and nothing of them is written any more. */
  detach(principal: Principal, sandbox: string, path: string): Promise<void>;
}
