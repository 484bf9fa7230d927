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
