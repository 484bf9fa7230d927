/** The framework's words for what a sandbox may reach, as a network policy of Cay. */
import {
  HarnessCapabilityUnsupportedError,
  type HarnessV1NetworkPolicy,
  type HarnessV1RequestTransformation,
} from '@ai-sdk/harness';
import type { NetworkPolicy, NetworkRule, NetworkRuleObject, Put } from '@cay/sdk';

type Rules = Exclude<NetworkPolicy, string>;
type Match = HarnessV1RequestTransformation['match'];

/** A header of a transformation is a stored secret under such a name. */
export const SECRET_PREFIX = 'ai-sdk-';

export function rulesOf(policy: HarnessV1NetworkPolicy): Rules {
  if (policy.mode === 'allow-all') return { base: 'public' };
  if (policy.mode === 'deny-all') return { base: 'none' };
  const { allowedHosts = [], allowedCIDRs = [], deniedCIDRs = [] } = policy;
  return { base: 'none', allow: [...allowedHosts, ...allowedCIDRs], deny: [...deniedCIDRs] };
}

/** What a policy says apart from transformations, and its transformations. */
export function divided(policy: NetworkPolicy): { rules: Rules; transformations: NetworkRuleObject[] } {
  if (policy === 'ask') return { rules: { base: 'packages', otherwise: 'ask' }, transformations: [] };
  if (typeof policy === 'string') return { rules: { base: policy }, transformations: [] };
  const allow = policy.allow ?? [];
  return {
    rules: { ...policy, allow: allow.filter((rule) => !isTransformation(rule)) },
    transformations: allow.filter(isTransformation),
  };
}

/** A transformation allows nothing: it is left out where its host is not allowed. */
export function combined(rules: Rules, transformations: readonly NetworkRuleObject[]): NetworkPolicy {
  return {
    ...rules,
    allow: [...(rules.allow ?? []), ...transformations.filter(({ to }) => allows(rules, to))],
  };
}

/**
 * Refuses what Cay's rules cannot say exactly: a credential must not go to requests that it is not meant for.
 */
export function ruleOf({ host, path, method, queryString, headers }: Match, put: Put[]): NetworkRuleObject {
  if (queryString && queryString.length > 0) throw unsupported(host, 'the query');
  return {
    to: host,
    put,
    ...(method && method.length > 0 && { methods: [...method] }),
    ...(path && { paths: [pathOf(host, path)] }),
    ...(headers && headers.length > 0 && { headers: headersOf(host, headers) }),
  };
}

/** Whether a host is allowed by name. Of `packages` only the server knows the hosts. */
export function allows({ base, allow = [], deny = [] }: Rules, host: string): boolean {
  const named = (list: readonly NetworkRule[]) =>
    list.some((rule) => covers(typeof rule === 'string' ? rule : rule.to, host));
  return !named(deny) && (base === 'public' || named(allow));
}

function isTransformation(rule: NetworkRule): rule is NetworkRuleObject {
  if (typeof rule === 'string') return false;
  const puts = [rule.put ?? []].flat();
  return puts.length > 0 && puts.every((put) => put.secret?.startsWith(SECRET_PREFIX));
}

function covers(target: string, host: string): boolean {
  const [name, asked] = [target, host].map((text) => text.toLowerCase().replace(/:[\d,*-]+$/, ''));
  return name === asked || name === '*' || (name!.startsWith('*.') && asked!.endsWith(name!.slice(1)));
}

function pathOf(host: string, path: NonNullable<Match['path']>): string {
  const start = 'startsWith' in path ? path.startsWith : undefined;
  // A path of a rule covers whole segments: `/v1` is `/v1` and `/v1/x`, and not `/v10`.
  if (start === undefined || !/^\/([^*?]*\/)?$/.test(start)) throw unsupported(host, 'this path');
  return start;
}

function headersOf(host: string, matchers: NonNullable<Match['headers']>): Record<string, string> {
  const entries = matchers.map(({ key, value }) => {
    if (!key || !('exact' in key)) throw unsupported(host, 'names of headers that are not exact');
    const text = !value
      ? '*'
      : 'exact' in value
        ? value.exact
        : 'startsWith' in value
          ? value.startsWith
          : undefined;
    if (text === undefined || (value && text.includes('*')))
      throw unsupported(host, `this value of "${key.exact}"`);
    return [key.exact, value && 'startsWith' in value ? `${text}*` : text];
  });
  return Object.fromEntries(entries) as Record<string, string>;
}

function unsupported(host: string, what: string): HarnessCapabilityUnsupportedError {
  return new HarnessCapabilityUnsupportedError({
    harnessId: 'cay',
    message: `Cannot transform requests to "${host}": ${what} cannot be a condition. Methods, exact header names and paths such as { startsWith: "/v1/" } can.`,
  });
}
