import type { SandboxId } from '@cay/sdk/protocol';
import type { Observation, StopOptions } from '../backend.ts';

/**
 * Gives back everything that a sandbox takes except its files: a pause for platforms that charge for pods.
 */
export interface Suspending {
  /**
   * A ready or frozen sandbox becomes `stopped` with `suspended: true`, until it is ensured or stopped. Its
   * processes end as with `stop`. A suspended sandbox stays as it is. Rejects `failed_precondition` in any
   * other phase.
   */
  suspend(id: SandboxId, options?: StopOptions): Promise<Observation>;
}
