/** Quotas as people write and read them: `memory=8g`. */
import type { ProjectUsage, Quota, SomeQuota } from '@cay/sdk/client';
import { UnitError, parseSize } from '../../lib/units.ts';
import { QUOTAS, namesIn, quotasIn } from '../../settings/amounts.ts';
import { usageError } from './failure.ts';
import { formatBytes, formatSize } from './units.ts';

export const QUOTA_NAMES = namesIn(QUOTAS);

const KEYS = Object.keys(QUOTAS) as (keyof Quota)[];

export function parseQuotas(pairs: readonly string[]): SomeQuota {
  try {
    return quotasIn(pairs);
  } catch (error) {
    if (!(error instanceof UnitError)) throw error;
    throw usageError(`The quota cannot be set: ${error.message}`);
  }
}

/** Those that are bounded, with the bound as it would be written, or as `shownText` has it. */
export function quotaRows(quota: Quota, text = writtenText): [name: string, value: string][] {
  return KEYS.flatMap((key) => {
    const value = quota[key];
    return value === null ? [] : [[QUOTAS[key][0], text(key, value)]];
  });
}

/** Of each quota, what is in use and the bound, if there is one. */
export function usageRows(usage: ProjectUsage): [name: string, used: string, limit: string | undefined][] {
  return KEYS.flatMap((key) => {
    const found = usage[key];
    if (!found) return [];
    return [
      [
        QUOTAS[key][0],
        shownText(key, found.used),
        found.limit === null ? undefined : shownText(key, found.limit),
      ],
    ];
  });
}

function writtenText(key: keyof Quota, value: number): string {
  return isSize(key) ? formatSize(value) : String(value);
}

/** For columns, in which shares of a disk stand too: they are no round numbers. */
export function shownText(key: keyof Quota, value: number): string {
  return isSize(key) ? formatBytes(value) : String(value);
}

const isSize = (key: keyof Quota): boolean => QUOTAS[key][1] === parseSize;
