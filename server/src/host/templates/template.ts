/**
 * A Template is the initial root filesystem of a sandbox.
 *
 * It provides a committed tree in the snapshotter (made on first use) and may add host directories that are
 * mounted inside. `base` mounts the machine's own `/usr`; images (`host/images/`) have all their files in the
 * tree.
 */
import { z } from 'zod';
import type { Snapshotter } from '../snapshots/snapshotter.ts';
import type { IdMapping } from '../runtimes/runtime.ts';

export interface PreparedTemplate {
  /** Name of the committed tree. It changes when the template's content does. */
  tree: string;
  binds: { source: string; target: string; readOnly: boolean }[];
  /** The image that the tree is of. */
  image?: ImageOrigin;
}

export const ImageOriginSchema = z.object({
  /** In full, with its tag if it was asked for by one. */
  name: z.string(),
  digest: z.string(),
  /** What its programs expect, as `NAME=VALUE`. */
  env: z.array(z.string()),
});
export type ImageOrigin = z.infer<typeof ImageOriginSchema>;

export interface Template {
  readonly name: string;
  /** Makes the tree if it is not there yet; concurrent calls share the work. */
  prepare(trees: Snapshotter, ids: IdMapping): Promise<PreparedTemplate>;
}
