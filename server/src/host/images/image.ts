/**
 * Images: root filesystems from registries and archives, as trees.
 *
 * **Terms.** A *reference* is a name of an image (`python:3.12-slim`). A *digest* is the SHA-256 of the
 * manifest or index that a reference leads to; what has one never changes. A *layer* is a tar archive of an
 * image, which changes the files of the layers below it. A *chain* is the digests of a layer and all below
 * it.
 *
 * **How they are kept.** An image is a chain of committed trees: first one with the directories that every
 * sandbox needs, then one for each layer, each a clone of the one before with one more layer unpacked, then
 * one with the accounts and files that a sandbox needs beside those of the image. A tree is named by its
 * chain and by the ids that own it, so that images share what they have in common, and nothing is unpacked
 * twice. Compressed layers are kept only until they are unpacked.
 *
 *     <dir>/index.json       which images there are, their trees, and the names that lead to them
 *     <dir>/blobs/<digest>   layers that were fetched and not unpacked yet, `.part` if not whole
 *
 * **Who calls it, how often.** The local backend: `find` and `prepare` when a sandbox is made, the others for
 * `cay image`. `find` reads memory. `prepare` of an image that is there reads memory and lists trees.
 *
 * **Cost.** A pull costs the network and one unpacking of each layer that is not there; a second image with
 * the same layers costs a manifest.
 *
 * **Concurrency.** Any verbs may run at once. Two pulls of one image are one pull, and two images that share
 * layers fetch and unpack each of them once. A pull ends when no caller waits for it any more.
 *
 * **Crashes.** The record of an image is written before its first layer is fetched, and says that it is not
 * whole until its last tree is committed. After a crash between any two steps the next pull goes on with the
 * bytes and the trees that are there. Whatever no record names is removed by `collect`, which the backend
 * calls when it opens.
 *
 * **Space.** An image counts for each project that uses it (`image-accounts.ts`). When the trees of all
 * images are larger than the bound, images go from the project that has most above an equal share, those
 * first that it has not used for the longest time, and never one that a sandbox or a snapshot still uses, nor
 * one that another project uses within its share.
 *
 * **Errors.** `invalid_argument` (a name, or an image that is malformed or not what its digest says),
 * `not_found`, `permission_denied` (credentials, or a registry that may not be reached), `unsupported`
 * (another platform), `resource_exhausted` (larger than allowed, or no disk), `unavailable` (the registry
 * does not answer), `failed_precondition` (`remove` of one in use), `cancelled`.
 *
 *     const images = await openImageStore({ dir, trees, guestBinary, settings });
 *     const image = await images.pull(parseReference('python:3.12-slim'), { ids, onProgress });
 *     const root = await trees.prepare('i42', { parent: image.tree });
 *     images.find(parseReference(`python:3.12-slim@${image.digest}`));       // the same, without a network
 */
import type { IdMapping } from '../runtimes/runtime.ts';
import type { ImageShares } from './image-accounts.ts';
import type { ImageConfig } from './manifest.ts';
import type { ImageReference } from './reference.ts';

export interface Image {
  /** Of the manifest, or of the index where there is one for each platform. */
  digest: string;
  /** All names that lead to it, in full. */
  names: string[];
  config: ImageConfig;
  layers: number;
  /** What its files take, those that it shares with other images included. */
  sizeBytes: number;
  pulledAtMs: number;
  usedAtMs: number;
}

export interface PullProgress {
  state: 'resolving' | 'fetching' | 'unpacking' | 'done';
  /** Of all layers that have to be fetched. */
  totalBytes: number;
  fetchedBytes: number;
  layers: LayerProgress[];
}

export interface LayerProgress {
  digest: string;
  totalBytes: number;
  fetchedBytes: number;
  state: 'waiting' | 'fetching' | 'fetched' | 'unpacking' | 'done';
}

export interface PullOptions {
  /** The ids that own the files. */
  ids: IdMapping;
  /** Whom the image counts for. Absent: nobody. */
  project?: string | undefined;
  signal?: AbortSignal;
  onProgress?(progress: PullProgress): void;
}

export interface ImportOptions extends PullOptions {
  /** What it is to be called; absent: what the archive says. */
  name?: ImageReference;
}

export interface ImageStore {
  /** The image that a name leads to, if it is here and whole. Cheap. */
  find(reference: ImageReference): Image | undefined;
  /** The same with the registry's word, without fetching a layer: digest and configuration. */
  resolve(
    reference: ImageReference,
    options?: { signal?: AbortSignal },
  ): Promise<Pick<Image, 'digest' | 'config'>>;
  /** Fetches what is missing of the image that the registry has under this name. */
  pull(reference: ImageReference, options: PullOptions): Promise<Image>;
  /** The tree to start sandboxes from. The image is pulled if it is not here. */
  prepare(reference: ImageReference, options: PullOptions): Promise<Image & { tree: string }>;
  /** Takes an image from an archive: of `docker save`, of an OCI layout, or of a root directory. */
  import(archive: AsyncIterable<Uint8Array>, options: ImportOptions): Promise<Image[]>;
  /** How far the pull of that image is, if one is under way. */
  progress(reference: ImageReference): PullProgress | undefined;
  list(): Image[];
  /**
   * Removes a name, and the image if no other leads to it. Rejects `not_found`, and `failed_precondition`
   * while a sandbox or a snapshot uses it.
   */
  remove(reference: ImageReference): Promise<void>;
  /** Sets what projects may have. Before this call it is any amount. */
  share(shares: ImageShares): void;
  /** What the images of a project take. Reads memory. */
  taken(project: string): number;
  /** Removes unused images until the rest fits. Resolves the digests that went. */
  collect(options?: { maxBytes?: number }): Promise<string[]>;
  close(): Promise<void>;
}
