import type { EgressDenial, SandboxId } from '@cay/sdk/protocol';
import type { StartedEgress } from '../../egress/start-egress.ts';

const MAX_DENIED = 20;

/** What a sandbox was refused since then, for the result of a command. Each target once. */
export function deniedSince(
  engine: Pick<StartedEgress['engine'], 'attempts' | 'stats'> | undefined,
  id: SandboxId,
  sinceMs: number,
): { denied?: EgressDenial[] } {
  if (!engine?.stats(id)?.denied) return {};
  const found = new Map<string, EgressDenial>();
  // The oldest first, as they happened.
  for (const attempt of engine.attempts(id).toReversed()) {
    const { name, address, port, reason, suggestion } = attempt;
    if (attempt.verdict !== 'denied' || Date.parse(attempt.at) < sinceMs) continue;
    const key = `${name ?? address}:${port}`;
    if (found.size < MAX_DENIED && !found.has(key))
      found.set(key, { name, address, port, reason, rule: suggestion });
  }
  return found.size > 0 ? { denied: [...found.values()] } : {};
}
