import type { NetworkPolicy, Put } from '@cay/sdk/protocol';

/** What the rules of a policy put on requests. */
export function putsIn(policy: NetworkPolicy | null | undefined): Put[] {
  if (policy == null || typeof policy === 'string') return [];
  return (policy.allow ?? []).flatMap((rule) =>
    typeof rule === 'string' || rule.put === undefined ? [] : [rule.put].flat(),
  );
}

/** The names of the secrets that policies put on requests, each once. */
export function secretsIn(...policies: (NetworkPolicy | null | undefined)[]): string[] {
  const names = policies
    .flatMap(putsIn)
    .flatMap((put) => [put.secret, put.as === 'aws' ? put.sessionToken : undefined]);
  return [...new Set(names.filter((name) => name !== undefined))];
}
