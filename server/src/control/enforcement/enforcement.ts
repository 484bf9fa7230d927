/**
 * Enforcement reports: what a platform was seen to block, tried from inside a sandbox that is made for it.
 *
 * *Terms.* A *report* has one line for each case (`enforcement/enforcement-case.ts`). A *verdict* is
 * `enforced` if no case is open. The last report of each runtime of each platform is kept in the data
 * directory of the server.
 *
 * *Who calls.* Admins, by hand or from a timer of their own; and calls that trust a platform with more:
 * `requireNotFailed` before a policy with secrets is set.
 *
 * *Cost.* A report makes one sandbox and takes about a minute. One runs at a time.
 */
import type { EnforcementReport, RunEnforcement } from '@cay/sdk/protocol';
import type { Principal } from '../tenants/principal.ts';

export interface EnforcementVerbs {
  /** The last reports of a platform, the newest first. Rejects `not_found` for an unknown platform. */
  reports(principal: Principal, platform: string): Promise<EnforcementReport[]>;
  /** Makes a report. Rejects `conflict` while another one is made, `unsupported` where no process runs. */
  run(
    principal: Principal,
    platform: string,
    request: RunEnforcement,
    options?: { signal?: AbortSignal },
  ): Promise<EnforcementReport>;
}

/** What other parts of the control plane ask. */
export interface EnforcementReports {
  /** Of one platform, the newest first. */
  of(platform: string): Promise<EnforcementReport[]>;
  keep(report: EnforcementReport): Promise<void>;
  /**
   * Throws `failed_precondition` if the last report of the platform, on any of its runtimes, has an open
   * case.
   */
  requireNotFailed(platform: string, what: string): Promise<void>;
}
