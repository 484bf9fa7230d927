/** E2B's network options as a network policy, and back. */
import { CayError, type NetworkPolicy, type NetworkRule, type Put } from '@cay/sdk/protocol';

export interface E2bNetwork {
  allowOut?: string[] | null | undefined;
  denyOut?: string[] | null | undefined;
  allow_internet_access?: boolean | null | undefined;
  rules?: Record<string, readonly E2bRule[]> | null | undefined;
}

/** What is done to requests to one host. */
export interface E2bRule {
  transform?: { headers?: Record<string, string> | null | undefined } | null | undefined;
}

/** What E2B's clients call `ALL_TRAFFIC`. */
const ALL_TRAFFIC = '0.0.0.0/0';
const EVERYTHING = new Set([ALL_TRAFFIC, '::/0']);

/**
 * E2B's default is the whole internet, and its `allowOut` wins over `denyOut`. The policies of the project
 * and of the installation bound it, as they do every policy.
 */
export function toNetworkPolicy(network: E2bNetwork): NetworkPolicy {
  const { allowOut, denyOut, allow_internet_access: internet } = network;
  const [allow, deny] = [allowOut ?? [], denyOut ?? []];
  const isClosed = internet === false || deny.includes(ALL_TRAFFIC);
  const isOpen = !isClosed || allow.includes(ALL_TRAFFIC);
  const rules = (list: readonly string[]) => list.filter((target) => !EVERYTHING.has(target));
  const transforms = transformRules(network, isOpen && deny.every((target) => EVERYTHING.has(target)));
  const policy = {
    base: isOpen ? ('public' as const) : ('none' as const),
    precedence: 'allow' as const,
    // A command that fails is what E2B's clients take for a refusal; a page would be an answer.
    refusals: 'cut' as const,
    allow: [...rules(allow), ...transforms],
    deny: rules(deny),
  };
  return isOpen && policy.allow.length === 0 && policy.deny.length === 0 ? 'public' : policy;
}

/**
 * Headers that are set on requests to a host. In E2B they do not allow the host: where not everything is
 * allowed, `allowOut` has to.
 */
function transformRules({ rules, allowOut }: E2bNetwork, all: boolean): NetworkRule[] {
  return Object.entries(rules ?? {}).flatMap(([host, list]) => {
    const put = list.flatMap(({ transform }) =>
      Object.entries(transform?.headers ?? {}).map(([header, value]): Put => ({
        as: 'header',
        header,
        value,
      })),
    );
    if (put.length === 0) return [];
    if (!all && !(allowOut ?? []).some((target) => covers(target, host)))
      throw new CayError(
        'invalid_argument',
        `"network.rules" has headers for "${host}", which "network.allowOut" does not allow`,
        { hint: 'add the host to allowOut' },
      );
    return [{ to: host, put }];
  });
}

function covers(target: string, host: string): boolean {
  const name = target.toLowerCase().replace(/:\d+$/, '');
  const asked = host.toLowerCase().replace(/:\d+$/, '');
  return name === asked || EVERYTHING.has(target) || (name.startsWith('*') && asked.endsWith(name.slice(1)));
}

export interface ShownNetwork {
  allowInternetAccess: boolean;
  allowOut?: string[];
  denyOut?: string[];
  rules?: Record<string, E2bRule[]>;
}

export function showNetwork(policy: NetworkPolicy): ShownNetwork {
  if (typeof policy === 'string') return { allowInternetAccess: policy !== 'none' };
  const texts = (rules: NonNullable<typeof policy.allow> = []) =>
    rules.map((rule) => (typeof rule === 'string' ? rule : rule.to));
  const isTransform = (rule: NetworkRule) => typeof rule !== 'string' && rule.put !== undefined;
  const allowed = (policy.allow ?? []).filter((rule) => !isTransform(rule));
  const [allowOut, denyOut] = [texts(allowed), texts(policy.deny)];
  const rules = (policy.allow ?? []).filter(isTransform).map(shownTransform);
  const closed = (policy.base ?? 'none') === 'none';
  if (closed) denyOut.push(ALL_TRAFFIC);
  return {
    allowInternetAccess: !closed,
    allowOut,
    denyOut,
    ...(rules.length > 0 && { rules: Object.fromEntries(rules) }),
  };
}

/** Values of headers are not shown: they are credentials. */
function shownTransform(rule: NetworkRule): [string, E2bRule[]] {
  const { to, put = [] } = rule as Exclude<NetworkRule, string>;
  const headers = [put].flat().flatMap((one) => (one.as === 'header' ? [[one.header, '***']] : []));
  return [to, [{ transform: { headers: Object.fromEntries(headers) as Record<string, string> } }]];
}

/** What a server that carries connections cannot do either. */
export function refuseUnknown(network: Record<string, unknown>): void {
  const isGiven = (value: unknown) =>
    value != null && (typeof value !== 'object' || Object.keys(value).length > 0);
  const wanted = ['egressProxy', 'httpsPorts', 'dnsServers'].find((name) => isGiven(network[name]));
  if (wanted === undefined) return;
  throw new CayError('unsupported', `"network.${wanted}" is not supported here`);
}
