/**
 * Images are what sandboxes can be made from beside templates, where the backend keeps images itself. They
 * belong to the installation and not to a project: what one pulls, all have. So only admins see which there
 * are; every key that may create sandboxes may pull.
 *
 * *Who calls.* The REST API, for `cay image`. A create pulls by itself (`pin-image.ts`).
 *
 * *Concurrency.* Any verbs may run at once. Pulls of one image share the work; a pull ends when the last
 * caller has left.
 *
 * *Errors.* Those of `backends/abilities/images.ts`, and `permission_denied` for a verb that is for admins.
 *
 * *Cost.* `resolve` and `pull` ask the registry. The others read the backend's memory.
 *
 *     for await (const line of images.pull(me, { image: 'python:3.12-slim', missingOnly: true }, { signal }))
 *       show(line);                                            // progress, and the image at the end
 *     const { pinned } = (await images.resolve(me, 'python:3.12-slim'))!;
 */
import type { Image, PullLine } from '@cay/sdk/protocol';
import type { ResolvedImage } from '../../backends/backend.ts';
import type { Principal } from '../tenants/principal.ts';

export interface ImageVerbs {
  /**
   * What an image says, and its name with its digest. Nothing where the platform keeps no images itself.
   * Rejects `not_found`.
   */
  resolve(principal: Principal, name: string): Promise<ResolvedImage | undefined>;
  /**
   * How far the pull is, again and again, then the image. Leaving the loop gives it up. Rejects `unsupported`
   * where the backend keeps no images, and as `ImageKeeping` does.
   */
  pull(
    principal: Principal,
    request: { image: string; missingOnly: boolean },
    options: { signal: AbortSignal },
  ): AsyncIterable<PullLine>;
  /** The same of an archive. For admins. */
  import(
    principal: Principal,
    archive: AsyncIterable<Uint8Array>,
    request: { name?: string | undefined },
    options: { signal: AbortSignal },
  ): AsyncIterable<PullLine>;
  /** For admins. */
  list(principal: Principal): Promise<Image[]>;
  /** Rejects `not_found`. For admins. */
  get(principal: Principal, name: string): Promise<Image>;
  /** For admins. Rejects `failed_precondition` while a sandbox or a snapshot uses it. */
  remove(principal: Principal, name: string): Promise<void>;
}
