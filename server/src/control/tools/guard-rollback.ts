import { CayError, type SandboxId } from '@cay/sdk/protocol';
import type { TravelVerbs } from '../snapshots/snapshot.ts';
import type { ToolVerbs } from './tool.ts';

/** Refuses a rollback while tools run, which would lose what they do, unless it is forced. */
export function guardRollback(
  rollback: TravelVerbs['rollback'],
  tools: Pick<ToolVerbs, 'inFlight'>,
): TravelVerbs['rollback'] {
  function check(id: SandboxId): void {
    const count = tools.inFlight(id);
    if (count === 0) return;
    throw new CayError(
      'failed_precondition',
      `Cannot roll back sandbox "${id}": ${count} tools are running`,
      {
        hint: 'wait for them, or force the rollback',
        details: { reason: 'tools_in_flight', count },
      },
    );
  }

  return (principal, ref, { force = false, ...request }) =>
    rollback(principal, ref, request, force ? {} : { check });
}
