/**
 * Secrets of projects, which rules of network policies put on requests outside of sandboxes.
 *
 * *Terms.* A *secret* has a name and a value. Its *version* grows whenever the value is set; of an earlier
 * value nothing is kept. Inside a sandbox a *placeholder* stands for it.
 *
 * *Who calls.* The REST API, seldom.
 *
 * *Secrecy.* A value goes in and never comes out: no answer, event, log line or error has it. The records
 * have it sealed with the installation's key. The server opens it for sandboxes whose policy names it, and
 * keeps it in memory as long as they exist.
 *
 * *Concurrency.* A value that is set is used by the next request of every sandbox. Requests under way go on
 * with the earlier one. Another server of the installation uses it within a second.
 *
 * *Errors.* `not_found` for a secret that the project does not have, `resource_exhausted` beyond the quota,
 * `failed_precondition` for the removal of one that a policy uses.
 *
 * *Cost.* One transaction, and for each sandbox whose policy names the secret a step in memory.
 *
 *     await secrets.set(me, 'TOKEN', 'one');                   // version 1
 *     const put = { as: 'basic', username: 'me', secret: 'TOKEN' };
 *     await network.set(me, 'box', { allow: [{ to: 'api.example.org', put }] });
 *     await secrets.set(me, 'TOKEN', 'two');                   // the next request has it
 *     await secrets.remove(me, 'TOKEN', { force: true });      // its requests are refused from then on
 */
import type { Secret, ShownSecret } from '@cay/sdk/protocol';
import type { Principal } from '../tenants/principal.ts';

export interface SecretVerbs {
  /** Makes it, or gives it another value. */
  set(principal: Principal, name: string, value: string): Promise<{ secret: Secret; created: boolean }>;
  /** By name. */
  list(principal: Principal): Promise<Secret[]>;
  get(principal: Principal, name: string): Promise<ShownSecret>;
  /**
   * One that is gone is removed already. With `force` also one that policies use: requests that it would be
   * put on are refused from then on.
   */
  remove(principal: Principal, name: string, options?: { force?: boolean }): Promise<void>;
}
