import { CayError, type SandboxState } from '@cay/sdk/protocol';

/** The legal changes of a sandbox's state. Any other is a bug or a lost race. */
export const TRANSITIONS: Readonly<Record<SandboxState, readonly SandboxState[]>> = {
  creating: ['active', 'stopped', 'failed', 'destroying'],
  active: ['paused', 'stopped', 'failed', 'destroying'],
  paused: ['active', 'stopped', 'failed', 'destroying'],
  stopped: ['active', 'paused', 'failed', 'destroying'],
  failed: ['active', 'paused', 'stopped', 'destroying'],
  destroying: [],
};

export function requireTransition(id: string, from: SandboxState, to: SandboxState): void {
  if (TRANSITIONS[from].includes(to)) return;
  throw new CayError('failed_precondition', `Sandbox "${id}" is ${from} and cannot become ${to}`, {
    details: { state: from },
  });
}
