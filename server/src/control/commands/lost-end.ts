import type { CommandEnd, SandboxState } from '@cay/sdk/protocol';
import type { SandboxRow } from '../../records/tables/sandbox-row.ts';

type Lost = CommandEnd & { kind: 'lost' };

/** The end of a command that its running sandbox has forgotten. */
export const FORGOTTEN_END: Lost = { kind: 'lost', reason: 'The sandbox does not know the command any more' };

/** Whether a command that ran in the sandbox cannot run any more. */
export function hasEnded({ state, pausedAs }: Pick<SandboxRow, 'state' | 'pausedAs'>): boolean {
  return state === 'stopped' || state === 'failed' || state === 'destroying' || pausedAs === 'suspended';
}

/** The end of a command whose sandbox was stopped, suspended, removed or failed while it ran. */
export function lostWith({
  state,
  pausedAs,
}: {
  state: SandboxState;
  pausedAs?: SandboxRow['pausedAs'];
}): Lost {
  const what =
    state === 'failed' ? 'failed' : `was ${state === 'destroying' ? 'removed' : (pausedAs ?? state)}`;
  return { kind: 'lost', reason: `The sandbox ${what} before the command ended` };
}
