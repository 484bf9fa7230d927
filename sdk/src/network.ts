import type {
  AddNetworkRulesInput,
  EgressApproval,
  EgressAttempt,
  NetworkPolicy,
  NetworkRule,
  SandboxNetwork,
} from './protocol/index.ts';
import { isCayError } from './protocol/error.ts';
import type { Transport } from './transport.ts';
import { pause } from './wait.ts';

type Verdict = 'allow' | 'deny' | { verdict: 'allow' | 'deny'; forMs?: number };

interface CallOptions {
  signal?: AbortSignal;
}

/**
 * What a sandbox may reach outside.
 *
 *     await sandbox.network.set({ base: 'packages', allow: ['api.example.org'] });
 *     await sandbox.network.allow('db.example.org:5432');
 */
export class Network {
  readonly #transport: Transport;
  readonly #base: string;

  /** @internal It is `sandbox.network`. */
  constructor(transport: Transport, sandbox: string) {
    this.#transport = transport;
    this.#base = `/v1/sandboxes/${encodeURIComponent(sandbox)}/network`;
  }

  get(options: CallOptions = {}): Promise<SandboxNetwork> {
    return this.#transport.json('GET', this.#base, options);
  }

  /** Holds at once. Connections that are not allowed any more are cut. */
  set(policy: NetworkPolicy, options: CallOptions = {}): Promise<SandboxNetwork> {
    return this.#transport.json('PUT', this.#base, { ...options, json: { policy } });
  }

  /** Adds rules to what the policy is now. */
  allow(...allow: NetworkRule[]): Promise<SandboxNetwork> {
    return this.#add({ allow });
  }

  deny(...deny: NetworkRule[]): Promise<SandboxNetwork> {
    return this.#add({ deny });
  }

  /** The latest attempts, the latest first. */
  async attempts({ limit, signal }: CallOptions & { limit?: number } = {}): Promise<EgressAttempt[]> {
    const query = limit === undefined ? {} : { limit: String(limit) };
    const path = `${this.#base}/attempts`;
    return (await this.#transport.json<{ attempts: EgressAttempt[] }>('GET', path, { query, signal }))
      .attempts;
  }

  /** Attempts as they end. */
  follow(options: CallOptions = {}): AsyncGenerator<EgressAttempt, void, undefined> {
    return this.#transport.lines('GET', `${this.#base}/attempts`, options);
  }

  /** What waits for an answer, where the policy says `ask`. */
  async pending(options: CallOptions = {}): Promise<EgressApproval[]> {
    const path = `${this.#base}/pending`;
    return (await this.#transport.json<{ pending: EgressApproval[] }>('GET', path, options)).pending;
  }

  /**
   * Calls `decide` with each attempt that waits, until the signal is aborted. What it answers is the verdict;
   * `undefined` leaves the attempt to others. It rejects with what `decide` throws.
   *
   *     const decide = ({ rule }) => (rule.endsWith('.example.org:443') ? 'allow' : 'deny');
   *     await sandbox.network.onAsked(decide, { signal });
   */
  async onAsked(
    decide: (asked: EgressApproval) => Verdict | undefined | Promise<Verdict | undefined>,
    { signal, everyMs = 500 }: CallOptions & { everyMs?: number } = {},
  ): Promise<void> {
    let known = new Set<string>();
    let failed: { error: unknown } | undefined;
    while (!signal?.aborted) {
      const waiting = await this.pending({ ...(signal && { signal }) }).catch((error: unknown) => {
        if (signal?.aborted) return [];
        throw error;
      });
      // One that takes long to decide on does not keep others waiting.
      for (const one of waiting)
        if (!known.has(one.id)) this.#decide(one, decide).catch((error: unknown) => (failed ??= { error }));
      known = new Set(waiting.map(({ id }) => id));
      await pause(everyMs, signal).catch(() => {});
      if (failed) throw failed.error;
    }
  }

  async #decide(
    asked: EgressApproval,
    decide: (asked: EgressApproval) => Verdict | undefined | Promise<Verdict | undefined>,
  ): Promise<void> {
    const said = await decide(asked);
    if (said === undefined) return;
    const { verdict, forMs } = typeof said === 'string' ? { verdict: said, forMs: undefined } : said;
    try {
      await this.answer(asked.id, verdict, { ...(forMs !== undefined && { forMs }) });
    } catch (error) {
      // Somebody else has answered, or the program has given up.
      if (!isCayError(error, 'not_found')) throw error;
    }
  }

  /** Answers what waits. What is allowed stays so for `forMs`, an hour if it is absent. */
  async answer(
    approval: string,
    verdict: 'allow' | 'deny',
    { forMs, signal }: CallOptions & { forMs?: number } = {},
  ): Promise<void> {
    const json = { verdict, ...(forMs !== undefined && { forMs }) };
    await this.#transport.json('POST', `${this.#base}/pending/${encodeURIComponent(approval)}`, {
      json,
      signal,
    });
  }

  #add(rules: AddNetworkRulesInput): Promise<SandboxNetwork> {
    return this.#transport.json('POST', `${this.#base}/rules`, { json: rules });
  }
}
