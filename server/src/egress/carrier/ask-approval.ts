import { randomBytes } from 'node:crypto';
import type { EgressApproval } from '@cay/sdk/protocol';
import type { Clock } from '../../lib/clock.ts';
import type { Ask } from '../sandbox-egress.ts';

/** Asks whether an attempt may go on, for a bounded time. Silence and failures mean no. */
export async function askApproval(
  ask: Ask,
  question: Omit<EgressApproval, 'id' | 'at' | 'expiresAt'>,
  clock: Clock,
  timeoutMs: number,
): Promise<boolean> {
  const { promise: late, resolve } = Promise.withResolvers<'deny'>();
  const timer = setTimeout(() => resolve('deny'), timeoutMs);
  try {
    const answer = ask({
      ...question,
      id: `apr_${randomBytes(9).toString('base64url')}`,
      at: new Date(clock.now()).toISOString(),
      expiresAt: new Date(clock.now() + timeoutMs).toISOString(),
    });
    return (await Promise.race([answer, late])) === 'allow';
  } catch {
    // Who cannot be asked has not agreed.
    return false;
  } finally {
    clearTimeout(timer);
  }
}
