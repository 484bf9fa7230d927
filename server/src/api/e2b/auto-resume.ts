/** Wakes paused sandboxes for traffic, as their maker wished, and gives them the time that E2B gives them. */
import type { SandboxId } from '@cay/sdk/protocol';
import type { Control, EnteredSandbox } from '../../control/control.ts';
import { tokenPrincipal } from '../../control/tenants/principal.ts';
import { FIRST_TIMEOUT } from './labels.ts';

/** Traffic gives a sandbox at least this much time. */
const LEAST_MS = 300_000;

/** Call it after the token was checked. Resolves at once for a sandbox that is not paused. */
export type AutoResume = (row: EnteredSandbox) => Promise<void>;

export function autoResume(control: Pick<Control, 'resume' | 'update' | 'policy'>): AutoResume {
  const waking = new Map<SandboxId, Promise<void>>();

  async function wake({ id, project, labels }: EnteredSandbox): Promise<void> {
    const principal = tokenPrincipal({ project });
    await control.resume(principal, id);
    const first = Number(labels[FIRST_TIMEOUT]);
    if (!(first > 0)) return;
    const { timeoutMs: longest } = control.policy.maxima;
    const timeoutMs = Math.min(Math.max(first, LEAST_MS), longest ?? Infinity);
    await control.update(principal, id, { timeoutMs });
  }

  return async (row) => {
    if (row.state !== 'paused') return;
    let awake = waking.get(row.id);
    if (!awake) {
      awake = wake(row).finally(() => waking.delete(row.id));
      waking.set(row.id, awake);
    }
    await awake;
  };
}
