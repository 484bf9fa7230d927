/** Which isolation may be asked for. */
import { CayError } from '@cay/sdk/protocol';
import type { Policy } from './policy.ts';

/**
 * The runtime that isolates nothing. Allowed only where it is named, which `openPolicy` takes only with its
 * flag.
 */
export const UNISOLATED = 'process';

type Runtimes = Pick<Policy, 'runtimes'>;

export function allowsRuntime({ runtimes }: Runtimes, name: string): boolean {
  return runtimes === undefined ? name !== UNISOLATED : runtimes.includes(name);
}

/** Rejects `permission_denied` unless the operator allows it. `known` are those that the backend has. */
export function requireRuntime(policy: Runtimes, name: string, known: readonly string[]): void {
  if (!allowsRuntime(policy, name))
    throw forbidden(name, policy.runtimes ?? known.filter((each) => allowsRuntime(policy, each)));
}

/**
 * The one for a sandbox that names none: `usual`, or where that is not allowed the first that the operator
 * names and `known` has. Rejects `permission_denied` if there is none.
 */
export function preferredRuntime(policy: Runtimes, usual: string, known: readonly string[]): string {
  if (allowsRuntime(policy, usual)) return usual;
  const other = policy.runtimes?.find((name) => name !== UNISOLATED && known.includes(name));
  if (other === undefined) throw forbidden(usual, policy.runtimes ?? []);
  return other;
}

/** Rejects `permission_denied` for a sandbox without isolation unless an admin asks. */
export function requireMayHave({ role }: { role: string }, ...runtimes: (string | null | undefined)[]): void {
  if (role === 'admin' || !runtimes.includes(UNISOLATED)) return;
  throw new CayError(
    'permission_denied',
    `A sandbox with the runtime "${UNISOLATED}" is for admin keys alone: it isolates nothing`,
    {
      details: { runtime: UNISOLATED },
    },
  );
}

function forbidden(runtime: string, allowed: readonly string[]): CayError {
  const shown = allowed.filter((name) => name !== UNISOLATED);
  return new CayError('permission_denied', `The operator does not allow the runtime "${runtime}"`, {
    details: { runtime, allowed: shown },
    hint:
      shown.length > 0
        ? `allowed are ${shown.join(', ')}`
        : '--allow-runtime of "cay up" says what is allowed',
  });
}
