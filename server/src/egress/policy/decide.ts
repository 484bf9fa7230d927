/**
 * Decides what a sandbox may reach.
 *
 * The layers of a sandbox bound each other: an attempt is allowed if every layer allows it, so a policy can
 * never reach what one above it denies. One layer that asks makes the attempt wait, unless another denies it.
 * A *grant* is the answer to an attempt that waited: it turns `ask` into `allow` and does nothing else.
 */
import type { EgressReason } from '@cay/sdk/protocol';
import { type AddressKind, addressBytes } from '../../lib/address-kind.ts';
import type { CompiledRule, Layer, RuleSet } from './compile-policy.ts';
import type { RequestHead } from './http-conditions.ts';

export interface Layers {
  /** From the sandbox's own to the installation's. Without one nothing is allowed. */
  readonly layers: readonly Layer[];
  readonly grants?: RuleSet | undefined;
}

export interface Decision {
  readonly verdict: 'allow' | 'ask' | 'deny';
  readonly reason: EgressReason | undefined;
  /** The text of the rule that decided. */
  readonly rule: string | undefined;
  /** The rules that allow it, of all layers. */
  readonly rules: readonly CompiledRule[];
  /** Whether the requests must be seen, because of conditions or secrets. */
  readonly inspect: boolean;
}

/** An address and what it is. */
export interface KnownAddress {
  readonly address: string;
  readonly kind: AddressKind;
  /** Whether it is one of this machine, beyond loopback. */
  readonly own: boolean;
}

const DENY: Omit<Decision, 'reason'> = { verdict: 'deny', rule: undefined, rules: [], inspect: false };
const deny = (reason: EgressReason, rule?: string): Decision => ({ ...DENY, reason, rule });

/** Whether a connection to a name may be made. With `inspect` each request is decided by `decideRequest`. */
export function decideName(policy: Layers, name: string, port: number): Decision {
  return combine(policy, (layer) => {
    const denied = layer.deny.forName(name, port);
    const allowed = layer.allow.forName(name, port);
    const based = layer.base.forName(name, port);
    const always = denied.find(({ http }) => !http);
    const open = allowed.some(({ http }) => !http);
    const wins = layer.precedence === 'allow' && allowed.length > 0;
    if (always && !wins) return deny('deny_rule', always.text);
    const rules = always ? allowed : [...allowed, ...based];
    if (rules.length === 0) return otherwise(policy, layer, (grants) => grants.forName(name, port));
    const narrowed = layer.precedence === 'allow' ? denied.length > 0 && !open : denied.length > 0;
    return allow(
      rules,
      narrowed || rules.every(({ http }) => http) || rules.some(({ puts }) => puts.length > 0),
    );
  });
}

/** Whether one request may be made. */
export function decideRequest(policy: Layers, name: string, port: number, head: RequestHead): Decision {
  return combine(policy, (layer) => {
    const denied = layer.deny.forName(name, port).find(({ http }) => http?.touches(head) ?? true);
    const covering = (set: RuleSet) =>
      set.forName(name, port).filter(({ http }) => http?.covers(head) ?? true);
    const allowed = covering(layer.allow);
    if (denied && !(layer.precedence === 'allow' && allowed.length > 0))
      return deny('deny_rule', denied.text);
    const rules = denied ? allowed : [...allowed, ...covering(layer.base)];
    if (rules.length > 0) return allow(rules, true);
    const conditional = layer.allow.forName(name, port)[0];
    if (conditional) return deny('http_condition', conditional.text);
    return otherwise(policy, layer, (grants) =>
      grants.forName(name, port).filter(({ http }) => http?.covers(head) ?? true),
    );
  });
}

/** Whether a connection to an address may be made that a program chose itself. */
export function decideAddress(policy: Layers, target: KnownAddress, port: number): Decision {
  const bytes = addressBytes(target.address);
  const special = isSpecial(target);
  return combine(policy, (layer) => {
    const denied = layer.deny.forAddress(bytes, port)[0];
    const allowed = layer.allow.forAddress(bytes, port).filter((rule) => permits(rule, target));
    const wins = layer.precedence === 'allow' && allowed.length > 0;
    if (denied && !wins) return deny('deny_rule', denied.text);
    const based = layer.base.forAddress(bytes, port).filter((rule) => permits(rule, target));
    const rules = denied ? allowed : [...allowed, ...based];
    if (rules.length > 0) return allow(rules, false);
    if (special) return deny('address');
    return otherwise(policy, layer, (grants) =>
      grants.forAddress(bytes, port).filter((rule) => permits(rule, target)),
    );
  });
}

/**
 * Whether a name that is allowed may be at this address. A public one may, unless a rule denies it. Any other
 * needs a rule of addresses in every layer.
 */
export function admitAddress(policy: Layers, name: string, target: KnownAddress, port: number): Decision {
  const bytes = addressBytes(target.address);
  return combine(policy, (layer) => {
    const permitting = layer.allow.forAddress(bytes, port).filter((rule) => permits(rule, target));
    const denied = layer.deny.forAddress(bytes, port)[0];
    const named = layer.allow.forName(name, port).length > 0;
    if (denied && !(layer.precedence === 'allow' && (named || permitting.length > 0)))
      return deny('deny_rule', denied.text);
    if (!isSpecial(target)) return allow([], false);
    return permitting.length > 0 ? allow(permitting, false) : deny('address');
  });
}

/** Whether a rule denies a name in whatever way it is reached, such as by an address of it. */
export function deniedName(policy: Layers, name: string, port: number): string | undefined {
  for (const layer of policy.layers) {
    if (layer.precedence === 'allow' && layer.allow.forName(name, port).length > 0) continue;
    const rule = layer.deny.forName(name, port).find(({ http }) => !http);
    if (rule) return rule.text;
  }
  return undefined;
}

function isSpecial({ kind, own }: KnownAddress): boolean {
  return own || kind !== 'public';
}

/**
 * A network permits special addresses if it lies wholly in ranges of their kind: `0.0.0.0/0` does not mean
 * the private ones. An address of this machine has to be named by itself.
 */
function permits(
  { network }: { network: { special: AddressKind | undefined; single: boolean } },
  { kind, own }: KnownAddress,
): boolean {
  if (own && !network.single) return false;
  return kind === 'public' || network.special === kind;
}

function allow(rules: readonly CompiledRule[], inspect: boolean): Decision {
  return { verdict: 'allow', reason: undefined, rule: rules[0]?.text, rules, inspect };
}

function otherwise(
  { grants }: Layers,
  layer: Layer,
  granted: (grants: RuleSet) => readonly CompiledRule[],
): Decision {
  if (layer.otherwise === 'deny') return deny('no_rule');
  const rules = grants === undefined ? [] : granted(grants);
  if (rules.length > 0)
    return allow(
      rules,
      rules.every(({ http }) => http),
    );
  return { ...DENY, verdict: 'ask', reason: 'not_approved' };
}

function combine({ layers }: Layers, decide: (layer: Layer) => Decision): Decision {
  if (layers.length === 0) return deny('no_policy');
  let asked: Decision | undefined;
  const rules: CompiledRule[] = [];
  let inspect = false;
  let rule: string | undefined;
  for (const [index, layer] of layers.entries()) {
    const decision = decide(layer);
    if (decision.verdict === 'deny')
      // What the sandbox's own policy would allow is bounded by a policy that its owner cannot change.
      return index > 0 && decision.reason === 'no_rule' ? { ...decision, reason: 'bounded' } : decision;
    if (decision.verdict === 'ask') asked ??= decision;
    rules.push(...decision.rules);
    inspect ||= decision.inspect;
    rule ??= decision.rule;
  }
  return asked ?? { verdict: 'allow', reason: undefined, rule, rules, inspect };
}
