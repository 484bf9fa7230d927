import type { CommandEnd, SandboxState } from '@cay/sdk/protocol';

/** The end of a command whose sandbox has come to this state under it. */
export function lostWith(state: SandboxState): CommandEnd & { kind: 'lost' } {
  return { kind: 'lost', reason: `The sandbox was ${state === 'destroying' ? 'removed' : state} before the command ended` };
}
