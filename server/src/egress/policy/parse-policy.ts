import { CayError, NAMED_POLICIES, NetworkPolicySchema, type NetworkPolicy } from '@cay/sdk/protocol';
import { compilePolicy, normalizePolicy } from './compile-policy.ts';

/**
 * A policy as operators write it: its name, or JSON. Throws `invalid_argument` for what is neither, and for a
 * rule that cannot be read.
 */
export function parsePolicy(text: string): NetworkPolicy {
  const named = NAMED_POLICIES.find((name) => name === text);
  if (named) return named;
  const policy = NetworkPolicySchema.safeParse(jsonOf(text));
  if (!policy.success || typeof policy.data === 'string')
    throw new CayError(
      'invalid_argument',
      `must be ${NAMED_POLICIES.join(', ')}, or JSON such as {"base":"packages","allow":["example.org"]}`,
    );
  compilePolicy(policy.data);
  return normalizePolicy(policy.data);
}

function jsonOf(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}
