/** E2B's network options as a network policy, and back. */
import { CayError, type NetworkPolicy } from '@cay/sdk/protocol';

export interface E2bNetwork {
  allowOut?: string[] | null | undefined;
  denyOut?: string[] | null | undefined;
  allow_internet_access?: boolean | null | undefined;
}

/** What E2B's clients call `ALL_TRAFFIC`. */
const ALL_TRAFFIC = '0.0.0.0/0';
const EVERYTHING = new Set([ALL_TRAFFIC, '::/0']);

/**
 * E2B's default is the whole internet, and its `allowOut` wins over `denyOut`. The policies of the project and of
 * the installation bound it, as they do every policy.
 */
export function toNetworkPolicy(network: E2bNetwork): NetworkPolicy {
  const { allowOut, denyOut, allow_internet_access: internet } = network;
  const [allow, deny] = [allowOut ?? [], denyOut ?? []];
  const isClosed = internet === false || deny.includes(ALL_TRAFFIC);
  const isOpen = !isClosed || allow.includes(ALL_TRAFFIC);
  const rules = (list: readonly string[]) => list.filter((target) => !EVERYTHING.has(target));
  const policy = {
    base: isOpen ? ('public' as const) : ('none' as const),
    precedence: 'allow' as const,
    allow: rules(allow),
    deny: rules(deny),
  };
  return policy.allow.length === 0 && policy.deny.length === 0 ? policy.base : policy;
}

export interface ShownNetwork {
  allowInternetAccess: boolean;
  allowOut?: string[];
  denyOut?: string[];
}

export function showNetwork(policy: NetworkPolicy): ShownNetwork {
  if (typeof policy === 'string') return { allowInternetAccess: policy !== 'none' };
  const texts = (rules: NonNullable<typeof policy.allow> = []) =>
    rules.map((rule) => (typeof rule === 'string' ? rule : rule.to));
  const [allowOut, denyOut] = [texts(policy.allow), texts(policy.deny)];
  const closed = (policy.base ?? 'none') === 'none';
  if (closed) denyOut.push(ALL_TRAFFIC);
  return { allowInternetAccess: !closed, allowOut, denyOut };
}

/** What a server that carries connections cannot do either. */
export function refuseUnknown(network: Record<string, unknown>): void {
  const isGiven = (value: unknown) =>
    value != null && (typeof value !== 'object' || Object.keys(value).length > 0);
  const wanted = ['egressProxy', 'rules', 'httpsPorts', 'dnsServers'].find((name) => isGiven(network[name]));
  if (wanted === undefined) return;
  throw new CayError('unsupported', `"network.${wanted}" is not supported here`, {
    ...(wanted === 'rules' && { hint: 'set a network policy with PUT /v1/sandboxes/{id}/network' }),
  });
}
