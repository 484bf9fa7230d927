import { NetworkPolicySchema } from '@cay/sdk/protocol';

/**
 * Where the rules of a policy put secrets. Undefined for what is no policy: it may come from a stranger's
 * file.
 */
export function secretRules(policy: unknown): string[] | undefined {
  if (policy === null || policy === undefined) return [];
  const parsed = NetworkPolicySchema.safeParse(policy);
  if (!parsed.success) return undefined;
  if (typeof parsed.data === 'string') return [];
  return (parsed.data.allow ?? []).flatMap((rule) =>
    typeof rule !== 'string' && [rule.put ?? []].flat().some(({ secret }) => secret !== undefined)
      ? [rule.to]
      : [],
  );
}
