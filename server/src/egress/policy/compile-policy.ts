/**
 * A network policy as what decides quickly: names in maps, networks as bytes.
 *
 * A *layer* is one policy: of a sandbox, its template, its project or the installation. `compilePolicy` makes
 * one. It throws `invalid_argument` if a rule cannot be read, with the rule in the message.
 */
import {
  CayError,
  type EgressLimits,
  type EgressPreset,
  MAX_RULES,
  type NetworkPolicy,
  type NetworkRule,
  type Put,
} from '@cay/sdk/protocol';
import { nearest } from '../../lib/nearest.ts';
import { networkMatcher, type NetworkMatcher } from '../rules/network.ts';
import { parseTarget, printTarget, type Target } from '../rules/parse-target.ts';
import { hasPort, type Ports } from '../rules/ports.ts';
import { type HttpConditions, httpConditions } from './http-conditions.ts';
import { PRESETS } from './presets.ts';

export interface CompiledRule {
  /** The canonical text, with the preset that it is from. */
  readonly text: string;
  readonly ports: Ports;
  readonly http: HttpConditions | undefined;
  readonly puts: readonly Put[];
  readonly limits: EgressLimits | undefined;
  /** Whether it names one host. Others let a program choose names. */
  readonly exact: boolean;
}

export interface RuleSet {
  /** Every rule for a name and a port, exact ones first. */
  forName(name: string, port: number): CompiledRule[];
  /** Every rule of addresses for an address and a port. */
  forAddress(bytes: Uint8Array, port: number): (CompiledRule & { network: NetworkMatcher })[];
  /** The ports of a name; used to answer lookups. */
  portsOf(name: string): Ports;
  readonly size: number;
}

export interface Layer {
  /** What the lists begin from. Both lists win over it. */
  readonly base: RuleSet;
  readonly allow: RuleSet;
  readonly deny: RuleSet;
  readonly precedence: 'deny' | 'allow';
  readonly otherwise: 'deny' | 'ask';
  /** Whether programs are shown why a connection is refused. */
  readonly explains: boolean;
  readonly limits: EgressLimits;
  /** What decides about datagrams. */
  readonly udp: UdpRules;
}

/**
 * Datagrams need a rule of their own, `udp:…`. What denies connections to a target denies its datagrams, too.
 * `public` lets the rules of the layers below it be, and allows none by itself.
 */
export interface UdpRules {
  readonly allow: RuleSet;
  readonly deny: RuleSet;
  readonly isPublic: boolean;
}

export interface PolicyOptions {
  /** In addition to those that come with the server, or instead of those of the same names. */
  readonly presets?: readonly EgressPreset[] | undefined;
}

/** Every preset by its name. */
export function presetsOf({ presets = [] }: PolicyOptions = {}): Map<string, EgressPreset> {
  return new Map([...PRESETS, ...presets].map((one) => [one.name, one]));
}

export function compilePolicy(policy: NetworkPolicy, options: PolicyOptions = {}): Layer {
  const presets = presetsOf(options);
  const {
    base = 'none',
    allow = [],
    deny = [],
    precedence = 'deny',
    otherwise = 'deny',
    refusals = 'explained',
    limits = {},
  } = typeof policy === 'string'
    ? policy === 'ask'
      ? ({ base: 'packages', otherwise: 'ask' } as const)
      : { base: policy }
    : policy;
  const allowed = compileRules(allow, presets);
  const denied = compileRules(deny, presets);
  const tcp = ({ target }: Placed) => !target.udp;
  const udp = ({ target }: Placed) => target.udp === true;
  return {
    base: ruleSet(baseRules(base, presets)),
    allow: ruleSet(allowed.filter(tcp)),
    deny: ruleSet(denied.filter(tcp)),
    precedence,
    otherwise,
    explains: refusals === 'explained',
    limits,
    udp: {
      allow: ruleSet(allowed.filter(udp)),
      deny: ruleSet(denied.filter(({ rule }) => !rule.http)),
      isPublic: base === 'public',
    },
  };
}

/** Everything that is public, which `public` is. */
export const PUBLIC_RULES: RuleSet = ruleSet(baseRules('public', new Map()));
export const NO_RULES: RuleSet = ruleSet([]);

/** Rules by themselves, such as grants. */
export function compileGrants(rules: readonly NetworkRule[], options: PolicyOptions = {}): RuleSet {
  return ruleSet(compileRules(rules, presetsOf(options)).filter(({ target }) => !target.udp));
}

/** The rules of a policy in canonical form, for those who store or show them. */
export function normalizePolicy(policy: NetworkPolicy, options: PolicyOptions = {}): NetworkPolicy {
  if (typeof policy === 'string') return policy;
  const presets = presetsOf(options);
  const normal = (rule: NetworkRule): NetworkRule => {
    const to = parseTarget(typeof rule === 'string' ? rule : rule.to);
    knownPreset(to, presets);
    return typeof rule === 'string' ? printTarget(to) : { ...rule, to: printTarget(to) };
  };
  return {
    ...policy,
    ...(policy.allow && { allow: policy.allow.map(normal) }),
    ...(policy.deny && { deny: policy.deny.map(normal) }),
  };
}

interface Placed {
  readonly target: Target;
  readonly rule: CompiledRule;
}

function baseRules(base: 'none' | 'packages' | 'public', presets: Map<string, EgressPreset>): Placed[] {
  if (base === 'none') return [];
  if (base === 'public')
    return ['*:*', '0.0.0.0/0', '::/0'].map((text) => place(parseTarget(text), 'public', {}));
  return [...presets.values()]
    .filter(({ inPackages }) => inPackages)
    .flatMap((preset) => presetRules(preset, {}));
}

function compileRules(rules: readonly NetworkRule[], presets: Map<string, EgressPreset>): Placed[] {
  if (rules.length > MAX_RULES)
    throw new CayError(
      'invalid_argument',
      `Cannot use ${rules.length} network rules: ${MAX_RULES} are the most`,
    );
  return rules.flatMap((given) => {
    const rule = typeof given === 'string' ? { to: given } : given;
    const target = parseTarget(rule.to);
    const preset = knownPreset(target, presets);
    if (preset) return presetRules(preset, rule);
    return [place(target, printTarget(target), rule)];
  });
}

function knownPreset(target: Target, presets: Map<string, EgressPreset>): EgressPreset | undefined {
  if (target.host.kind !== 'preset') return undefined;
  const name = target.host.preset;
  const preset = presets.get(name);
  if (preset) return preset;
  const meant = nearest(name, presets.keys());
  throw new CayError('invalid_argument', `Cannot read the network rule "${name}": there is no such preset`, {
    hint: meant
      ? `did you mean "${meant}"? A name of a host has a dot`
      : `a name of a host has a dot; the presets are ${[...presets.keys()].join(', ')}`,
  });
}

function presetRules(preset: EgressPreset, rule: Partial<Exclude<NetworkRule, string>>): Placed[] {
  return preset.rules.map((text) => {
    const target = parseTarget(text);
    if (target.host.kind === 'preset')
      throw new CayError('invalid_argument', `Cannot use preset "${preset.name}": it names preset "${text}"`);
    return place(target, `${preset.name}: ${printTarget(target)}`, rule);
  });
}

function place(target: Target, text: string, rule: Partial<Exclude<NetworkRule, string>>): Placed {
  const { host, path, ports } = target;
  const paths = [...(rule.paths ?? []), ...(path === undefined ? [] : [path])];
  const http = httpConditions({ ...rule, paths: paths.length > 0 ? paths : undefined });
  const puts = rule.put === undefined ? [] : Array.isArray(rule.put) ? rule.put : [rule.put];
  if (host.kind === 'addresses' && (http || puts.length > 0))
    throw new CayError(
      'invalid_argument',
      `Cannot use the network rule "${text}": conditions on requests and secrets need a name, and this is an address`,
    );
  if (target.udp && (http || puts.length > 0))
    throw new CayError(
      'invalid_argument',
      `Cannot use the network rule "${text}": UDP has no requests, so it has neither conditions nor secrets`,
    );
  if (host.kind === 'any' && puts.length > 0)
    throw new CayError(
      'invalid_argument',
      `Cannot use the network rule "${text}": secrets need a name, and this is all`,
    );
  if (puts.some(({ as }) => as === 'ssh')) requireSshRule(target, text, puts, http !== undefined);
  return {
    target,
    rule: { text, ports, http, puts, limits: rule.limits, exact: host.kind === 'name' },
  };
}

/** What is SSH on a port is not HTTP as well. */
function requireSshRule({ ports }: Target, text: string, puts: readonly Put[], hasConditions: boolean): void {
  const why =
    hasConditions || puts.length > 1
      ? 'an SSH key excludes conditions on requests and other secrets'
      : hasPort(ports, 80) || hasPort(ports, 443)
        ? 'an SSH key needs the port of SSH, such as :22, and no port of HTTP'
        : undefined;
  if (why !== undefined)
    throw new CayError('invalid_argument', `Cannot use the network rule "${text}": ${why}`);
}

function ruleSet(placed: readonly Placed[]): RuleSet {
  const exact = new Map<string, CompiledRule[]>();
  const below = new Map<string, CompiledRule[]>();
  const any: CompiledRule[] = [];
  const networks: (CompiledRule & { network: NetworkMatcher })[] = [];
  const add = (map: Map<string, CompiledRule[]>, name: string, rule: CompiledRule) => {
    const list = map.get(name);
    if (list) list.push(rule);
    else map.set(name, [rule]);
  };
  for (const { target, rule } of placed) {
    const { host } = target;
    if (host.kind === 'name') add(exact, host.name, rule);
    else if (host.kind === 'below') add(below, host.name, rule);
    else if (host.kind === 'any') any.push(rule);
    else if (host.kind === 'addresses') networks.push({ ...rule, network: networkMatcher(host) });
  }
  const candidates = function* (name: string): Generator<CompiledRule> {
    yield* exact.get(name) ?? [];
    if (below.size > 0)
      for (let dot = name.indexOf('.'); dot !== -1; dot = name.indexOf('.', dot + 1))
        yield* below.get(name.slice(dot + 1)) ?? [];
    yield* any;
  };
  return {
    size: placed.length,
    forName: (name, port) => [...candidates(name)].filter(({ ports }) => hasPort(ports, port)),
    forAddress: (bytes, port) =>
      networks.filter(({ ports, network }) => hasPort(ports, port) && network.contains(bytes)),
    portsOf: (name) => [...candidates(name)].flatMap(({ ports }) => ports),
  };
}
