/**
 * A paused sandbox takes less than an active one and wakes for the next call. The pause levels, in order:
 *
 * - `frozen`: its processes do not run, and stay in memory
 * - `suspended`: its processes are gone, its files stay on the platform
 * - `hibernated`: its processes are in a memory image on disk
 * - `archived`: files and memory image are in the archive store, nothing is left on the machine
 *
 * A pause closes the sandbox's gate (`activity.ts`), waits for calls that are inside, and then asks the
 * backend. Calls that come meanwhile wait at the gate and wake the sandbox. A timeout, the idle policy and
 * memory pressure pause sandboxes in the same way.
 *
 * Errors: `unsupported` for a level that the backend or the runtime does not have, `conflict` while a
 * snapshot, a fork or a rollback of the sandbox is under way.
 */
import type { PauseSandbox, Sandbox } from '@cay/sdk/protocol';
import type { Principal } from '../tenants/principal.ts';

export interface PauseVerbs {
  /**
   * Waits up to `waitMs` for running commands to end, then pauses. New calls wait until the pause is decided,
   * and then wake the sandbox again. A paused sandbox can be paused at a deeper level, never at a lighter
   * one.
   */
  pause(principal: Principal, ref: string, request: PauseSandbox): Promise<Sandbox>;
  resume(principal: Principal, ref: string): Promise<Sandbox>;
  /** Keeps the sandbox from being idle for so long from now; 0 ends the lease. */
  lease(principal: Principal, ref: string, request: { forMs: number }): Promise<Sandbox>;
}
