/**
 * A paused sandbox takes less than an active one and wakes for the next call. The pause levels, in order:
 *
 * - `frozen`: its processes do not run, and stay in memory
 * - `suspended`: its processes are gone, its files stay on the platform
 * - `hibernated`: its processes are in a memory image on disk
 * - `archived`: files and memory image are in the archive store, nothing is left on the machine
 *
 * A pause closes the sandbox's gate (`activity.ts`), waits for calls that are inside, and then asks the
 * backend. Calls that come meanwhile wait at the gate and wake the sandbox.
 *
 * *Who calls.* The REST API and the E2B API, once for each request. A timeout, the idle policy and memory
 * pressure pause sandboxes in the same way.
 *
 * *Concurrency.* A pause excludes snapshots, forks, comparisons and rollbacks of its sandbox: the later call
 * is rejected. Other changes wait. Calls that wake the same sandbox share one wake.
 *
 * *Errors.* `unsupported` for a level that the backend or the runtime does not have, `conflict` while a
 * snapshot, a fork or a rollback of the sandbox is under way.
 *
 * *Cost.* `frozen` takes milliseconds both ways. `hibernated` writes and reads as much as the processes have
 * in memory, `archived` the files too. A suspended sandbox is started again, without its processes.
 *
 *     await control.pause(me, 'box', { as: 'hibernated' });
 *     await control.pause(me, 'box', { as: 'archived' });      // deeper is possible, lighter is not
 *     const { guest } = await control.enter(me, 'box');        // wakes it
 *     await control.lease(me, 'box', { forMs: 600_000 });      // the idle policy leaves it alone so long
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
