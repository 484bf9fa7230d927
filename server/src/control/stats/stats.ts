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
