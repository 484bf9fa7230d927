/**
 * A Template is the initial root filesystem of a sandbox.
 *
 * It provides a committed tree in the snapshotter (made on first use) and may add host directories that are
 * mounted inside. `base` mounts the machine's own `/usr`; OCI images will be another driver of this contract.
 */
import type { Snapshotter } from '../snapshots/snapshotter.ts';
import type { IdMapping } from '../runtimes/runtime.ts';

export interface PreparedTemplate {
  /** Name of the committed tree. It changes when the template's content does. */
  tree: string;
  binds: { source: string; target: string; readOnly: boolean }[];
}

export interface Template {
  readonly name: string;
  /** Makes the tree if it is not there yet; concurrent calls share the work. */
  prepare(trees: Snapshotter, ids: IdMapping): Promise<PreparedTemplate>;
}
