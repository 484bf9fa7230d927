/**
 * What sandboxes have used. What one uses now is in `sandboxes/sandbox.ts`.
 *
 * *Terms.* A *reading* is what a sandbox uses at one moment. The *history* of a sandbox has its latest
 * readings, in a file of fixed size (`stat-rings.ts`) that the sampler fills (`stat-sampler.ts`).
 *
 * *Who calls.* The REST API and the E2B API, once for each request.
 *
 * *Errors.* `not_found` for a sandbox of another project.
 *
 * *Cost.* `statsHistory` reads one file. `space` may walk all files of the sandbox.
 */
import type { SandboxSpace, StatsHistory } from '@cay/sdk/protocol';
import type { Principal } from '../tenants/principal.ts';

export interface StatsVerbs {
  /** What a sandbox used in the past, also of one that is stopped. It survives restarts of the server. */
  statsHistory(
    principal: Principal,
    ref: string,
    range?: { sinceMs?: number | undefined; untilMs?: number | undefined },
  ): Promise<StatsHistory>;
  /** What a sandbox takes on disk, in every state. May take seconds, and wakes nothing. */
  space(principal: Principal, ref: string): Promise<SandboxSpace>;
}
