import type { Image, ImageConfig, PullProgress } from '@cay/sdk/protocol';
import type { CallScope } from '../backend.ts';

export interface ImagePullScope extends CallScope {
  onProgress?(progress: PullProgress): void;
}

/** What the control plane knows about the images of projects. */
export interface ImageShares {
  /** What the images of a project may take. Null means any amount. */
  limit(project: string): Promise<number | null>;
  /** Digests of the images that its sandboxes and snapshots were made from. */
  uses(project: string): Promise<ReadonlySet<string>>;
}

export interface ResolvedImage {
  /** The template with its digest: it is the same image for ever. */
  pinned: string;
  config: ImageConfig;
}

/**
 * Keeps images for sandboxes, where the backend does that itself. A template that no other is may be the name
 * of an image; `ensure` pulls it if it is not there. All verbs hold the operator's policy:
 * `permission_denied`.
 *
 * Called by the control plane: `resolveImage` for each create, before anything is recorded, so that the
 * record has the digest; the others for `cay image`.
 */
export interface ImageKeeping {
  /**
   * What an image is, from here or from its registry. Fetches no layer. Nothing for a template that is not an
   * image here. Rejects `not_found`.
   */
  resolveImage(template: string, scope?: CallScope): Promise<ResolvedImage | undefined>;
  /**
   * Fetches what the registry has under this name now; with `missingOnly` an image that is here is enough.
   * Concurrent calls share the work.
   */
  pullImage(name: string, scope?: ImagePullScope & { missingOnly?: boolean }): Promise<Image>;
  /** Takes images in from an archive, which is hostile. */
  importImages(
    archive: AsyncIterable<Uint8Array>,
    scope?: ImagePullScope & { name?: string | undefined },
  ): Promise<Image[]>;
  listImages(scope?: CallScope): Promise<Image[]>;
  /** Rejects `not_found`, and `failed_precondition` while a sandbox or a snapshot uses it. */
  removeImage(name: string, scope?: CallScope): Promise<void>;
  /** Sets what projects may have of the images, which count for those that use them. */
  shareImages(shares: ImageShares): void;
  /** What the images of a project take. Reads memory. */
  imageBytes(project: string): number;
  /** How far the pull of a template is, if one is under way. Reads memory. */
  pullProgress(template: string): PullProgress | undefined;
}
