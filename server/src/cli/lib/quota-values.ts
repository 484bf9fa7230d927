/** Quotas as people write and read them: `memory=8g`. */
import type { Quota, SomeQuota } from '@cay/sdk/client';
import { QUOTAS, QUOTA_NAMES, quotasIn } from './quota-options.ts';
import { formatBytes, formatSize, parseSize } from './units.ts';

export { QUOTA_NAMES };

export function parseQuotas(pairs: readonly string[]): SomeQuota {
  return quotasIn('The quota', pairs);
}

/** Those that are bounded, with the bound as it would be written. */
export function quotaRows(quota: Quota): [name: string, value: string][] {
  return (Object.keys(QUOTAS) as (keyof Quota)[]).flatMap((key) => {
    const value = quota[key];
    const [name, parse] = QUOTAS[key];
    return value === null ? [] : [[name, parse === parseSize ? sizeText(value) : String(value)]];
  });
}

/** Shares of a disk are no round numbers. */
function sizeText(bytes: number): string {
  return bytes % 1024 ** 2 === 0 ? formatSize(bytes) : formatBytes(bytes).replace(' ', '');
}
