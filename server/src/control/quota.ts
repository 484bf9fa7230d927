import { CayError, type Limits, type Quota } from '@cay/sdk/protocol';
import type { Usage } from './records/sandboxes.ts';

const NAMES = { cpus: 'CPUs', memoryBytes: 'bytes of memory', diskBytes: 'bytes of disk' } as const;

/**
 * Refuses what would take a project beyond its quota. A sandbox without a limit takes an unknown
 * amount, so it is refused wherever that amount is bounded.
 */
export function requireQuota(quota: Quota, usage: Usage, wanted: { sandboxes: number; limits: Pick<Limits, keyof typeof NAMES> }): void {
  const refuse = (what: string, limit: number, used: number, more: number | string) => {
    throw new CayError('resource_exhausted', `The project's quota of ${limit} ${what} does not allow ${more} more: ${used} are in use`, {
      details: { quota: what, limit, used },
      hint: 'remove sandboxes that are not needed, ask for less, or have the quota raised',
    });
  };
  if (quota.sandboxes !== null && usage.sandboxes + wanted.sandboxes > quota.sandboxes) {
    refuse('sandboxes', quota.sandboxes, usage.sandboxes, wanted.sandboxes);
  }
  for (const key of Object.keys(NAMES) as (keyof typeof NAMES)[]) {
    const limit = quota[key];
    const more = wanted.limits[key];
    if (limit === null) continue;
    if (more === null) refuse(NAMES[key], limit, usage[key], 'an unlimited amount');
    else if (usage[key] + more > limit) refuse(NAMES[key], limit, usage[key], more);
  }
}
