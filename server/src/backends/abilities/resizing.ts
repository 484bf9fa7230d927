import type { Limits, SandboxId } from '@cay/sdk/protocol';
import type { CallScope } from '../backend.ts';

/** Limits that can change while a sandbox runs. */
export type Resizable = Partial<Pick<Limits, 'cpus' | 'memoryBytes' | 'pids' | 'diskBytes'>>;

/** Changes the limits of a running sandbox. Called when a client asks for it, and under memory pressure. */
export interface Resizing {
  /**
   * Applies the given limits, up or down; a limit that is absent stays. Rejects `failed_precondition` if more
   * is in use than the new limit allows, and `unsupported` for a limit that the platform cannot change.
   */
  resize(id: SandboxId, limits: Resizable, scope?: CallScope): Promise<void>;
}
