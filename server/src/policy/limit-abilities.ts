import type { Ability, Limits } from '@cay/sdk/protocol';

/** The ability that a backend needs to enforce each limit. Every backend enforces `openFiles`. */
export const LIMIT_ABILITIES = {
  cpus: 'cpuLimit',
  memoryBytes: 'memoryLimit',
  diskBytes: 'diskLimit',
  pids: 'pidsLimit',
} as const satisfies Partial<Record<keyof Limits, Ability>>;

export type EnforcedLimit = keyof typeof LIMIT_ABILITIES;
export const ENFORCED_LIMITS = Object.keys(LIMIT_ABILITIES) as EnforcedLimit[];
