import { CayError, type SandboxId } from '@cay/sdk/protocol';
import type { TravelVerbs } from '../snapshots/snapshot.ts';
import type { Principal } from '../tenants/principal.ts';
import type { ToolVerbs } from './tool.ts';

/** Refuses a rollback while tools run, which would lose what they do, unless it is forced. */
export function guardRollback(
  rollback: TravelVerbs['rollback'],
  tools: Pick<ToolVerbs, 'inFlight'>,
  find: (principal: Principal, ref: string) => Promise<{ id: SandboxId }>,
): TravelVerbs['rollback'] {
  return async (principal, ref, { force = false, ...request }) => {
    const { id } = await find(principal, ref);
    const count = tools.inFlight(id);
    if (count > 0 && !force)
      throw new CayError(
        'failed_precondition',
        `Cannot roll back sandbox "${id}": ${count} tools are running`,
        {
          hint: 'wait for them, or force the rollback',
          details: { reason: 'tools_in_flight', count },
        },
      );
    return rollback(principal, id, request);
  };
}
