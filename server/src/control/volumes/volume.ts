/**
 * Volumes as callers of the control plane see them: directories of a project that outlive its sandboxes.
 *
 * *Terms.* A *mount* is a volume at a path of a sandbox. A *clone* is a volume that begins with what another
 * has, a *snapshot* one that never changes.
 *
 * *Who calls.* The REST API and the E2B API, once for each request. A volume is named by its id, or by its
 * name in the project; one of another project is `not_found`.
 *
 * Which sandboxes have a volume is recorded with the sandbox, in one transaction: a volume that any has,
 * whether it runs or not, is not removed, and a sandbox is not made with a volume that is being removed.
 *
 * What happens to a sandbox does not touch its volumes: a rollback leaves them as they are, and forks share
 * them with their parent.
 *
 * *Concurrency.* Any verbs may run at once, also from several servers: a name, and whether a volume is in
 * use, are decided in a transaction. An intent is recorded before the backend acts; after a crash a volume
 * that was being made is removed.
 *
 * *Cost.* One or two transactions and one verb of the backend. `list` asks the backend for every volume.
 *
 *     const input = { name: 'data', sizeBytes: 1 << 30, labels: {}, readOnly: false };
 *     const data = await volumes.create(principal, input);
 *     await sandboxes.create(principal, { mounts: [{ type: 'volume', volume: 'data', path: '/data' }] });
 *     await volumes.remove(principal, 'data');                 // failed_precondition: the sandbox has it
 *
 * *Errors.* `not_found`, `already_exists` (the name), `resource_exhausted` (quota or disk),
 * `failed_precondition` (in use), `unsupported` (a platform without volumes, or one that cannot enforce a
 * size).
 */
import type { CreateVolume, ImportVolume, Volume } from '@cay/sdk/protocol';
import type { Principal } from '../tenants/principal.ts';

export interface VolumeVerbs {
  /** Makes an empty one, or one from another: a clone, or with `readOnly` a snapshot. */
  create(principal: Principal, request: CreateVolume): Promise<Volume>;
  /** Those of the project, by name. */
  list(principal: Principal): Promise<Volume[]>;
  get(principal: Principal, ref: string): Promise<Volume>;
  /** Succeeds if there is none. Rejects `failed_precondition`, with the sandboxes that have it. */
  remove(principal: Principal, ref: string): Promise<void>;
  /** A tar archive of what it has now. */
  export(
    principal: Principal,
    ref: string,
    options: { signal: AbortSignal },
  ): Promise<AsyncIterable<Uint8Array>>;
  /** Makes one of a tar archive, completely or not at all. */
  import(
    principal: Principal,
    archive: AsyncIterable<Uint8Array>,
    request: ImportVolume,
    options: { signal: AbortSignal },
  ): Promise<Volume>;
}
