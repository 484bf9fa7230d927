import type { SandboxId } from '@cay/sdk/protocol';
import type { CallScope } from '../backend.ts';

/**
 * Keeps the processes of a sandbox from being scheduled, and lets them run again. Its memory stays in RAM.
 * Both verbs take milliseconds and are idempotent. `ensure` of a frozen sandbox thaws it too.
 */
export interface Freezing {
  /** Rejects `failed_precondition` unless the sandbox is ready. */
  freeze(id: SandboxId, scope?: CallScope): Promise<void>;
  thaw(id: SandboxId, scope?: CallScope): Promise<void>;
}
