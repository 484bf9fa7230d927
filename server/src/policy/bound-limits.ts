/** How much may be asked for. */
import { CayError, type Capabilities, type Limits, type PolicyFacts } from '@cay/sdk/protocol';
import { beyond, within, type Policy } from './policy.ts';

type Maxima = Pick<Policy, 'maxima'>;
type Asked = Partial<Limits & { timeoutMs: number | null }>;

/** What a limit is called on the command line. */
export const LIMIT_NAMES = {
  cpus: 'cpus',
  memoryBytes: 'memory',
  diskBytes: 'disk',
  pids: 'pids',
  openFiles: 'open-files',
  timeoutMs: 'timeout',
  commands: 'commands',
} as const satisfies Record<keyof PolicyFacts['maxima'], string>;

/** Of a limit that a backend cannot enforce there is nothing to hold to a maximum. */
const ENFORCED_BY = {
  cpus: 'cpuLimit',
  memoryBytes: 'memoryLimit',
  diskBytes: 'diskLimit',
  pids: 'pidsLimit',
} as const;

const isEnforced = (limit: keyof Asked, abilities: Capabilities['abilities'] | undefined) =>
  !abilities || !(limit in ENFORCED_BY) || abilities[ENFORCED_BY[limit as keyof typeof ENFORCED_BY]];

/**
 * Rejects `invalid_argument` for the first limit that is beyond its maximum; unlimited is beyond every one.
 */
export function requireLimits(
  { maxima }: Maxima,
  asked: Asked,
  abilities?: Capabilities['abilities'],
  hint?: string,
): void {
  for (const limit of Object.keys(asked) as (keyof Asked)[]) {
    const value = asked[limit];
    const maximum = maxima[limit];
    if (value === undefined || !beyond(value, maximum) || !isEnforced(limit, abilities)) continue;
    const field = limit === 'timeoutMs' ? limit : `limits.${limit}`;
    throw new CayError(
      'invalid_argument',
      `"${field}" of ${value ?? 'null (unlimited)'} is beyond the operator's maximum of ${maximum}`,
      {
        details: { limit, asked: value, maximum },
        hint:
          hint ??
          `ask for at most ${maximum}; --max-limit ${LIMIT_NAMES[limit]}=… of "cay up" sets the maximum`,
      },
    );
  }
}

/** The same limits, each lowered to its maximum. The disk is left as it is: what is on it is there. */
export function loweredLimits(
  { maxima }: Maxima,
  limits: Limits,
  abilities: Capabilities['abilities'],
): Limits {
  const lowered = { ...limits };
  for (const limit of ['cpus', 'memoryBytes', 'pids'] as const) {
    if (isEnforced(limit, abilities)) lowered[limit] = within(limits[limit], maxima[limit]);
  }
  lowered.openFiles = within(limits.openFiles, maxima.openFiles);
  return lowered;
}
