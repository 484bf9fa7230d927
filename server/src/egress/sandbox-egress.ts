/** What the egress knows about one sandbox: its policy, what it has used, what is open. */
import type { EgressApproval, EgressAttempt, EgressLimits, NetworkRule, SandboxId } from '@cay/sdk/protocol';
import type { Clock } from '../lib/clock.ts';
import { type AttemptLog, attemptLog } from './attempts.ts';
import { Budget, Window } from './carrier/budget.ts';
import { Denial } from './carrier/denial.ts';
import type { ProjectConnections } from './carrier/project-connections.ts';
import { type CompiledRule, compileGrants, type Layer, type PolicyOptions } from './policy/compile-policy.ts';
import type { Layers } from './policy/decide.ts';

/** What a connection is to the sandbox that has it. */
export interface OpenConnection {
  /** Set for a flow of datagrams. */
  readonly isFlow?: true;
  /** Set for a connection to a peer, which depends on who is in its network. */
  readonly isToPeer?: true;
  /** Ends it if the policy, which has just changed, does not allow it any more. */
  recheck(): void;
  /** Ends it if it is idle or too old. */
  tick(): void;
  cut(denial: Denial): void;
}

export interface Grant {
  readonly rule: NetworkRule;
  /** In milliseconds, by the time of day. */
  readonly expiresAt: number;
}

export interface SandboxOptions extends PolicyOptions {
  readonly clock: Clock;
  readonly limits: EgressLimits;
  readonly keepAttempts: () => number;
  readonly onAttempt: (attempt: EgressAttempt) => void;
}

const MAX_GRANTS = 1000;
const MAX_PENDING = 32;
/** Rules whose use is remembered. A policy has fewer; it may be changed for ever. */
const MAX_RULE_BUDGETS = 4096;

export class SandboxEgress {
  readonly id: SandboxId;
  /** What the connections of all sandboxes of its project take. */
  readonly project: ProjectConnections;
  readonly connections = new Set<OpenConnection>();
  readonly attempts: AttemptLog;
  readonly budget: Budget;
  /** Attempts that wait for an approval, by what they want. */
  readonly pending = new Map<string, Promise<boolean>>();
  readonly #options: SandboxOptions;
  readonly #ruleBudgets = new Map<string, Budget>();
  readonly #names: Window;
  readonly #recentNames = new Map<string, number>();
  #policy: Layers = { layers: [] };
  #grants: Grant[] = [];

  constructor(id: SandboxId, project: ProjectConnections, options: SandboxOptions) {
    this.id = id;
    this.project = project;
    this.#options = options;
    this.attempts = attemptLog(id, options.clock, {
      most: options.keepAttempts,
      onAttempt: options.onAttempt,
    });
    this.budget = new Budget('The sandbox', options.limits, options.clock);
    this.#names = new Window(options.clock);
  }

  /** Flows of datagrams that are open. */
  get flows(): number {
    let count = 0;
    for (const { isFlow } of this.connections) if (isFlow) count++;
    return count;
  }

  get policy(): Layers {
    return this.#policy;
  }

  setLayers(layers: readonly Layer[]): void {
    this.#policy = { ...this.#policy, layers };
    // The tightest of all layers counts.
    const limits: Record<string, number> = { ...this.#options.limits };
    for (const layer of layers)
      for (const [name, value] of Object.entries(layer.limits))
        if (value !== undefined) limits[name] = Math.min(limits[name] ?? Infinity, value);
    this.budget.limits = limits;
    this.recheck();
  }

  grant(grant: Grant): void {
    const grants = [...this.#grants.slice(1 - MAX_GRANTS), grant];
    compileGrants([grant.rule], this.#options);
    this.#grants = grants;
    this.expireGrants();
  }

  /** Drops what has expired, and what it allowed. */
  expireGrants(): void {
    const now = this.#options.clock.now();
    const left = this.#grants.filter(({ expiresAt }) => expiresAt > now);
    if (left.length === this.#grants.length && this.#policy.grants?.size === left.length) return;
    this.#grants = left;
    const grants =
      left.length > 0
        ? compileGrants(
            left.map(({ rule }) => rule),
            this.#options,
          )
        : undefined;
    this.#policy = { ...this.#policy, grants };
    this.recheck();
  }

  get grants(): readonly Grant[] {
    return this.#grants;
  }

  recheck(): void {
    for (const connection of [...this.connections]) connection.recheck();
  }

  /** Those that depend on who is in its networks. */
  recheckPeers(): void {
    for (const connection of [...this.connections]) if (connection.isToPeer) connection.recheck();
  }

  budgetsOf(rules: readonly CompiledRule[]): Budget[] {
    const own = rules.filter(({ limits }) => limits).map((rule) => this.#budgetOf(rule));
    return [this.budget, ...new Set(own)];
  }

  #budgetOf({ text, limits = {} }: CompiledRule): Budget {
    let budget = this.#ruleBudgets.get(text);
    if (!budget)
      this.#ruleBudgets.set(text, (budget = new Budget(`The rule "${text}"`, limits, this.#options.clock)));
    budget.limits = limits;
    if (this.#ruleBudgets.size > MAX_RULE_BUDGETS)
      for (const [other, { connections }] of this.#ruleBudgets) {
        if (connections === 0 && other !== text) this.#ruleBudgets.delete(other);
        if (this.#ruleBudgets.size <= MAX_RULE_BUDGETS) break;
      }
    return budget;
  }

  /**
   * Counts a name that is about to be looked up outside, if the program could choose it: the names themselves
   * can carry data to the name server of the zone.
   */
  spendName(name: string, rules: readonly CompiledRule[]): void {
    if (rules.some(({ exact }) => exact)) return;
    const now = this.#options.clock.steady();
    const seen = this.#recentNames.get(name);
    this.#recentNames.delete(name);
    if (this.#recentNames.size > 1000) this.#recentNames.delete(this.#recentNames.keys().next().value!);
    if (seen !== undefined && now - seen < 60_000) {
      this.#recentNames.set(name, now);
      return;
    }
    const most = this.budget.limits.namesPerMinute;
    if (!this.#names.add(1, most))
      throw new Denial('limit', `The sandbox is at its limit of ${most} new names in a minute`);
    this.#recentNames.set(name, now);
  }

  /** One question for all attempts that want the same. */
  ask(key: string, question: () => Promise<boolean>): Promise<boolean> {
    const known = this.pending.get(key);
    if (known) return known;
    if (this.pending.size >= MAX_PENDING) return Promise.resolve(false);
    const answer = question().finally(() => this.pending.delete(key));
    this.pending.set(key, answer);
    return answer;
  }
}

/** Asks for an approval. It must settle; a rejection counts as `deny`. */
export type Ask = (approval: EgressApproval) => Promise<'allow' | 'deny'>;
