/**
 * The network of a sandbox, as callers of the control plane see it.
 *
 * *Terms.* A *network policy* says what a sandbox may reach. A sandbox has one, its project may have one, and
 * the installation has one; an attempt must be allowed by all of them. An *attempt* is a connection of a
 * program, or one HTTP request on it. A *denial* is an attempt that a policy refused. An *approval* is an
 * attempt that waits for an answer, where a policy says `ask`.
 *
 * *Who calls.* The REST API and the E2B API, for each request; the API of commands for what was denied while
 * one ran.
 *
 * *Concurrency.* A change runs in the queue of its sandbox. It holds at once, and connections that are not
 * allowed any more are cut.
 *
 * *Errors.* `not_found` for a sandbox of another project, `invalid_argument` for a rule that cannot be read,
 * `unsupported` where the server carries no connections and more than `none` is asked for.
 *
 * *Cost.* Attempts are kept in memory, the latest thousand of each sandbox, and end with the server.
 *
 *     await network.set(me, 'box', { allow: ['npm', 'api.example.org'] });
 *     await network.add(me, 'box', { allow: ['*.example.net'], deny: [] });
 *     for (const { name, verdict, reason } of await network.attempts(me, 'box')) show(name, verdict, reason);
 *     const [question] = await network.pending(me, 'box');           // a policy that asks
 *     await network.answer(me, 'box', question.id, { verdict: 'allow', forMs: 600_000 });
 */
import type {
  AddNetworkRules,
  AnswerApproval,
  EgressApproval,
  EgressAttempt,
  EgressDenial,
  NetworkPolicy,
  SandboxId,
  SandboxNetwork,
} from '@cay/sdk/protocol';
import type { Principal } from '../tenants/principal.ts';

export interface NetworkVerbs {
  /** Whether the server carries connections at all. */
  readonly carries: boolean;
  get(principal: Principal, ref: string): Promise<SandboxNetwork>;
  set(principal: Principal, ref: string, policy: NetworkPolicy): Promise<SandboxNetwork>;
  /** Adds rules to what the policy is now. */
  add(principal: Principal, ref: string, rules: AddNetworkRules): Promise<SandboxNetwork>;
  /** The latest first. */
  attempts(principal: Principal, ref: string): Promise<EgressAttempt[]>;
  /** Attempts as they end. A reader that is too slow is ended. */
  follow(
    principal: Principal,
    ref: string,
    options: { signal?: AbortSignal },
  ): Promise<AsyncIterable<EgressAttempt>>;
  /** What waits for an answer, the oldest first. */
  pending(principal: Principal, ref: string): Promise<EgressApproval[]>;
  /** Answers one. Rejects `not_found` if it does not wait any more. */
  answer(principal: Principal, ref: string, id: string, answer: AnswerApproval): Promise<void>;
  /** What was denied since a time of day, each target once. The field is absent if nothing was. */
  deniedSince(id: SandboxId, sinceMs: number): { denied?: EgressDenial[] };
}
