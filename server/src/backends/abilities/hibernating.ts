import type { SandboxId } from '@cay/sdk/protocol';
import type { CallScope, Observation } from '../backend.ts';

/** Writes the memory of a sandbox to disk and ends its processes. Costs as much I/O as it uses memory. */
export interface Hibernating {
  /**
   * A ready or frozen sandbox becomes `hibernated`; `ensure` restores it. A hibernated sandbox stays as it
   * is. When it rejects the sandbox is as it was. Rejects `unsupported` if the runtime of this sandbox cannot
   * do it, and `failed_precondition` in any other phase.
   */
  hibernate(id: SandboxId, scope?: CallScope): Promise<Observation>;
}
