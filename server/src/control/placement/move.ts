/**
 * A move puts a sandbox onto another platform of this server, with its id and its snapshots. The steps are
 * in `move-sandbox.ts`.
 *
 * *Terms.* The *plan* says what goes along. A *loss* is something that cannot: the caller has to allow each
 * kind of loss (`drop`).
 *
 * *Who calls.* The REST API, once for each request.
 *
 * *Concurrency.* A move excludes every other operation of the sandbox. Calls of its guest wait at its gate.
 *
 * *Cost.* All snapshots of the sandbox are copied through this server. A dry run copies nothing.
 *
 *     const { plan } = await control.move(me, 'box', { platform: 'cluster', dryRun: true });
 *     for (const { what, why } of plan.losses) show(what, why);
 *     await control.move(me, 'box', { platform: 'cluster', drop: ['memory'] });
 */
import type { MoveSandbox, MovedSandbox } from '@cay/sdk/protocol';
import type { Principal } from '../tenants/principal.ts';

export interface MoveVerbs {
  /**
   * Moves a sandbox to another platform of this server. It keeps its id, name, labels, ports, policy, events
   * and snapshots. What cannot go along is in the plan; unless the request allows that it is lost, the move
   * is rejected with `failed_precondition`. When it rejects, the sandbox is where it was and as it was.
   *
   * Rejects `not_found` for a platform that the server does not have, `unsupported` where it has only this
   * one, or where one of both has no snapshots.
   */
  move(principal: Principal, ref: string, request: MoveSandbox): Promise<MovedSandbox>;
}
