/** How much may be asked for. */
import { CayError, type Capabilities, type Limits, type PolicyFacts } from '@cay/sdk/protocol';
import { LIMIT_ABILITIES, type EnforcedLimit } from './limit-abilities.ts';
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

/** A limit that a backend cannot enforce is not held to a maximum. */
const isEnforced = (limit: keyof Asked, abilities: Capabilities['abilities'] | undefined) =>
  !abilities || !(limit in LIMIT_ABILITIES) || abilities[LIMIT_ABILITIES[limit as EnforcedLimit]];

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
