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

/** The targets of rules that put an SSH key on connections, as `known_hosts` writes them. */
export function sshTargetsIn(policy: NetworkPolicy): string[] {
  if (typeof policy === 'string') return [];
  return (policy.allow ?? []).flatMap((rule) => {
    if (typeof rule === 'string' || ![rule.put ?? []].flat().some(({ as }) => as === 'ssh')) return [];
    const [, host, ports = '22'] = /^([^:]+)(?::(.+))?$/.exec(rule.to) ?? [];
    if (host === undefined) return [];
    return ports.split(',').map((port) => (port === '22' ? host : `[${host}]:${port}`));
  });
}
