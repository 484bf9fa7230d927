/**
 * A Template is the initial root filesystem of a sandbox.
 *
 * **Terms.** A template has a *tree*, a committed tree of the snapshotter that sandboxes are cloned from, and
 * may have *binds*, directories of the host that are mounted inside. `base` binds the machine's own `/usr`;
 * `scratch` has only what every sandbox needs; images (`host/images/`) have all their files in the tree.
 *
 * **Who calls it, how often.** The local backend, through `backends/local/prepared-templates.ts`: it starts
 * sandboxes from what `prepare` resolved last, and calls `prepare` again in the background when that is older
 * than a minute.
 *
 * **Concurrency.** Concurrent calls of `prepare` for the same ids share the work.
 *
 * **Crashes.** The name of the tree is a fingerprint of its content, and the tree is committed in one step.
 * The next `prepare` removes what a server that was killed had half made, and begins again.
 *
 * **Errors.** Those of the snapshotter and of the files that are copied.
 *
 * **Cost.** The first `prepare` makes the files. A later one reads what the template is made of, to find out
 * whether that has changed. Both are too slow for the path of a create.
 *
 *     const { tree, binds } = await baseTemplate().prepare(trees, ids);
 *     const rootDir = await trees.prepare('i42', { parent: tree });
 *     await runtime.start({ rootDir, binds, … });
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
  /** Makes the tree, owned by these ids, unless it is there with the content of now. */
  prepare(trees: Snapshotter, ids: IdMapping): Promise<PreparedTemplate>;
}
