/** Changes of network policies as values. */
import type { AddNetworkRules, NetworkPolicy, NetworkRule } from '@cay/sdk/protocol';

type Rules = Exclude<NetworkPolicy, string>;

/** A policy with rules added. A rule that is in the other list leaves it. */
export function withRules(policy: NetworkPolicy, { allow, deny }: AddNetworkRules): NetworkPolicy {
  const before = rulesOf(policy);
  return {
    ...before,
    allow: merged(before.allow, allow, deny),
    deny: merged(before.deny, deny, allow),
  };
}

function merged(
  before: readonly NetworkRule[] = [],
  added: readonly NetworkRule[],
  removed: readonly NetworkRule[],
): NetworkRule[] {
  const key = (rule: NetworkRule) => JSON.stringify(rule);
  const gone = new Set([...added, ...removed].map(key));
  return [...before.filter((rule) => !gone.has(key(rule))), ...added];
}

function rulesOf(policy: NetworkPolicy): Rules {
  if (typeof policy !== 'string') return policy;
  return policy === 'ask' ? { base: 'packages', otherwise: 'ask' } : { base: policy };
}

/** A policy as callers are shown it. A header with a value of its own may be a credential. */
export function shownPolicy(policy: NetworkPolicy): NetworkPolicy {
  if (typeof policy === 'string') return policy;
  return { ...policy, ...(policy.allow && { allow: policy.allow.map(shownRule) }) };
}

function shownRule(rule: NetworkRule): NetworkRule {
  if (typeof rule === 'string' || rule.put === undefined) return rule;
  const shown = [rule.put]
    .flat()
    .map((put) => (put.as === 'header' && put.value !== undefined ? { ...put, value: '***' } : put));
  return { ...rule, put: shown };
}
