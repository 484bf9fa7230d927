/** Attempts that wait for an approval. They are kept in memory, because the program stays connected. */
import type { EgressApproval, SandboxId } from '@cay/sdk/protocol';
import type { Ask } from '../../egress/sandbox-egress.ts';

export interface Approvals {
  ask: Ask;
  /** The oldest first. */
  pending(id: SandboxId): EgressApproval[];
  /** Takes one away, to be answered. Undefined if it does not wait any more. */
  take(sandbox: SandboxId, id: string): Waiting | undefined;
}

export interface Waiting {
  readonly approval: EgressApproval;
  answer(verdict: 'allow' | 'deny'): void;
}

export function openApprovals({
  now,
  onAsked,
}: {
  now(): number;
  onAsked(approval: EgressApproval): void;
}): Approvals {
  const waiting = new Map<string, Waiting>();
  return {
    ask(approval) {
      const { promise, resolve } = Promise.withResolvers<'allow' | 'deny'>();
      waiting.set(approval.id, { approval, answer: resolve });
      // The egress stops waiting by itself at that time; this only forgets.
      const timer = setTimeout(
        () => {
          waiting.delete(approval.id);
          resolve('deny');
        },
        Math.max(0, Date.parse(approval.expiresAt) - now()),
      ).unref();
      onAsked(approval);
      return promise.finally(() => clearTimeout(timer));
    },
    pending: (id) =>
      [...waiting.values()].map(({ approval }) => approval).filter(({ sandboxId }) => sandboxId === id),
    take(sandbox, id) {
      const found = waiting.get(id);
      if (found?.approval.sandboxId !== sandbox) return undefined;
      waiting.delete(id);
      return found;
    },
  };
}
