import type { CommandEnd, SandboxState } from '@cay/sdk/protocol';
import type { SandboxRow } from '../../records/sandboxes.ts';

/** Whether no command can run in it any more that ran in it before. */
export function hasEnded({ state, pausedAs }: Pick<SandboxRow, 'state' | 'pausedAs'>): boolean {
  return state === 'stopped' || state === 'failed' || state === 'destroying' || pausedAs === 'suspended';
}

/** The end of a command whose sandbox has come to this under it. */
export function lostWith({
  state,
  pausedAs,
}: {
  state: SandboxState;
  pausedAs?: SandboxRow['pausedAs'];
}): CommandEnd & { kind: 'lost' } {
  return {
    kind: 'lost',
    reason: `The sandbox was ${state === 'destroying' ? 'removed' : (pausedAs ?? state)} before the command ended`,
  };
}
