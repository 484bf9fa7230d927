/**
 * The operator's policy: what clients may ask for.
 *
 * The holder of a key of a project chooses runtime, image and limits of its sandboxes, within what the
 * operator allows here. The policy is a floor and not a default. It holds wherever a sandbox is made,
 * whatever led there (a request, a fork, a snapshot, a template, an archive from elsewhere, E2B's clients),
 * because it is asked at two places that every way passes:
 *
 * - A backend asks for the *runtime* and the *image*, in `validate` and again where it makes or starts
 *   something. What an earlier server was allowed to make and this one is not does not start again; it can
 *   still be read, exported and removed.
 * - The control plane asks for the *limits*, where it plans a sandbox, forks one or changes one. A snapshot
 *   or fork with limits beyond a maximum is refused, so that no client gets less than it asked for. A sandbox
 *   that exists already and is started again gets its limits lowered to the maximum instead, its disk
 *   excepted: what is on it is there. One that wakes from a pause goes on with the limits that its processes
 *   have. The timeout of every sandbox is lowered when the server starts, and counts from then.
 *
 * The runtime `process` isolates nothing: who runs code in it is root on the host. It exists only in a server
 * that was started with `--allow-process` and names it in `--allow-runtime`, and then for admin keys alone.
 */
import { totalmem } from 'node:os';
import { CayError, LimitsSchema, type Limits, type PolicyFacts } from '@cay/sdk/protocol';
import type { HostPath } from './allow-host-path.ts';
import { LOOPBACK_ONLY, type Publishing } from './allow-publish.ts';
import { UNISOLATED } from './allow-runtime.ts';

export interface Policy {
  /**
   * Absent: every runtime that isolates. Where a sandbox asks for none, the first of them that works is
   * preferred.
   */
  readonly runtimes?: readonly string[];
  /** Patterns as in `allow-image.ts`. Absent: every image. */
  readonly images?: readonly string[];
  /** Directories of the host that sandboxes may mount. Absent: none. */
  readonly hostPaths?: readonly HostPath[];
  /** Which ports of this machine may lead to sandboxes. */
  readonly publishing: Publishing;
  readonly defaults: Readonly<PolicyFacts['defaults']>;
  readonly maxima: Readonly<PolicyFacts['maxima']>;
}

/** As the operator says it; what is absent is built in. */
export interface PolicySettings {
  runtimes?: readonly string[];
  images?: readonly string[];
  hostPaths?: readonly HostPath[];
  publishing?: Partial<Publishing>;
  allowProcess?: boolean;
  defaults?: Partial<PolicyFacts['defaults']>;
  maxima?: Partial<PolicyFacts['maxima']>;
}

const GiB = 1024 ** 3;
const BUILT_IN = { ...LimitsSchema.parse({}), timeoutMs: null };

/**
 * Numbers of processes are the scarcest that the machine has: many kernels have 32,768 in all, of which one
 * sandbox gets a quarter at most. No client may ask for more memory than there is, and unlimited disk is the
 * operator's to give.
 */
const MAXIMA: Policy['maxima'] = {
  cpus: null,
  memoryBytes: Math.max(2 * GiB, totalmem()),
  diskBytes: 1024 * GiB,
  pids: 8192,
  openFiles: 1_048_576,
  timeoutMs: null,
  commands: 256,
};

/** Rejects `invalid_argument` for settings that contradict each other. */
export function openPolicy(settings: PolicySettings = {}): Policy {
  const { runtimes, images, hostPaths, allowProcess = false } = settings;
  const named = runtimes?.includes(UNISOLATED) ?? false;
  if (named !== allowProcess) {
    throw new CayError(
      'invalid_argument',
      `The runtime "${UNISOLATED}" isolates nothing and has to be allowed twice`,
      {
        hint: `give both --allow-process and "${UNISOLATED}" in --allow-runtime, or neither`,
      },
    );
  }
  const maxima = { ...MAXIMA, ...settings.maxima };
  const defaults = { ...BUILT_IN };
  for (const limit of Object.keys(defaults) as (keyof typeof defaults)[]) {
    const [wanted, maximum] = [settings.defaults?.[limit], maxima[limit]];
    // What the operator did not say is fitted to what was said.
    const value = wanted === undefined ? within(defaults[limit], maximum) : wanted;
    if (beyond(value, maximum)) {
      throw new CayError(
        'invalid_argument',
        `The default ${limit} of ${value ?? 'unlimited'} is beyond the maximum of ${maximum}`,
        {
          hint: 'raise --max-limit or lower --default-limit',
        },
      );
    }
    Object.assign(defaults, { [limit]: value });
  }
  return {
    ...(runtimes && { runtimes }),
    ...(images && { images }),
    ...(hostPaths && { hostPaths }),
    publishing: { ...LOOPBACK_ONLY, ...settings.publishing },
    defaults,
    maxima,
  };
}

/** The policy without any settings. */
export const DEFAULT_POLICY: Policy = openPolicy();

/** The limits of a sandbox that asks for none. */
export function usualLimits({
  defaults: { timeoutMs: _timeoutMs, ...limits },
}: Pick<Policy, 'defaults'>): Limits {
  return limits;
}

/** Null is unlimited, and so beyond every maximum that there is. */
export function beyond(value: number | null, maximum: number | null): boolean {
  return maximum !== null && (value === null || value > maximum);
}

export function within<T extends number | null>(value: T, maximum: T): T {
  return beyond(value, maximum) ? maximum : value;
}

/** As capabilities tell it. */
export function policyFacts({ runtimes, images, defaults, maxima }: Policy): PolicyFacts {
  const isolating = runtimes?.filter((name) => name !== UNISOLATED);
  return { runtimes: isolating ?? null, images: images ? [...images] : null, defaults, maxima };
}
