/** The operator's bounds on quotas: the defaults of projects without their own, and the maxima of all. */
import { CayError, QuotaSchema, type Quota, type SomeQuota } from '@cay/sdk/protocol';

export interface QuotaBounds {
  /** For projects whose own quota does not say. Null means no limit. */
  defaults: SomeQuota;
  /** For every project, whatever its own quota says. */
  maxima: SomeQuota;
}

const GiB = 1024 ** 3;

/** Generous, and finite where one project could otherwise fill the disk or the server for the others. */
const BUILT_IN = {
  sandboxes: 10_000,
  snapshots: 10_000,
  uploadBytes: 20 * GiB,
  imageBytes: 32 * GiB,
  logBytes: 20 * GiB,
  buckets: 100,
  bucketMounts: 64,
  bucketMountBytes: 16 * GiB,
  webhooks: 20,
  secrets: 1_000,
  secretBytes: 4 * 1024 ** 2,
  templates: 1_000,
  idempotencyKeys: 100_000,
  previewConnections: 2_000,
  publishedPorts: 64,
  egressConnections: 4_096,
  egressBufferBytes: 128 * 1024 ** 2,
} as const satisfies SomeQuota;

/** As many as two thousand sandboxes have by default. A sandbox without a limit is refused. */
const PIDS = 4_194_304;
/**
 * The share of the disk that the snapshots of one project may take, its images, and its uploads, logs and
 * unwritten files.
 */
const SNAPSHOT_SHARE = 0.5;
const IMAGE_SHARE = 0.25;
const OTHER_SHARE = 0.1;

export const NO_BOUNDS: QuotaBounds = { defaults: {}, maxima: {} };

/** What the built-in defaults depend on. */
export interface Machine {
  /** Whether the number of a sandbox's processes can be limited. */
  pidsLimit: boolean;
  /** The size of the disk, if it can be measured. */
  diskBytes: number | undefined;
}

/** The operator's bounds on top of the built-in defaults for this machine. */
export function quotaBounds(
  { pidsLimit, diskBytes }: Machine,
  given: Partial<QuotaBounds> = {},
): QuotaBounds {
  const share = (part: number) =>
    diskBytes === undefined ? Number.POSITIVE_INFINITY : Math.floor(diskBytes * part);
  const builtIn: SomeQuota = {
    ...BUILT_IN,
    // Where processes cannot be limited, sandboxes have no limits to sum up.
    pids: pidsLimit ? PIDS : null,
    snapshotBytes: diskBytes === undefined ? null : share(SNAPSHOT_SHARE),
    uploadBytes: Math.min(BUILT_IN.uploadBytes, share(OTHER_SHARE)),
    imageBytes: Math.min(BUILT_IN.imageBytes, share(IMAGE_SHARE)),
    logBytes: Math.min(BUILT_IN.logBytes, share(OTHER_SHARE)),
    bucketMountBytes: Math.min(BUILT_IN.bucketMountBytes, share(OTHER_SHARE)),
  };
  return { defaults: { ...builtIn, ...given.defaults }, maxima: given.maxima ?? {} };
}

/** The quota that applies to a project with this one. */
export function effectiveQuota(quota: Quota, { defaults, maxima }: QuotaBounds): Quota {
  const effective = { ...quota };
  for (const key of Object.keys(QuotaSchema.shape) as (keyof Quota)[]) {
    const wanted = quota[key] ?? defaults[key] ?? null;
    const most = maxima[key] ?? null;
    effective[key] = most === null ? wanted : Math.min(wanted ?? most, most);
  }
  return effective;
}

/** Refuses a quota above the operator's maximum. */
export function requireWithin(quota: SomeQuota, { maxima }: QuotaBounds): void {
  for (const key of Object.keys(quota) as (keyof Quota)[]) {
    const [wanted, most] = [quota[key] ?? null, maxima[key] ?? null];
    if (wanted === null || most === null || wanted <= most) continue;
    throw new CayError(
      'invalid_argument',
      `A quota of ${wanted} for "${key}" is above the operator's maximum of ${most}`,
      {
        details: { quota: key, asked: wanted, limit: most },
        hint: 'ask for less, or start the server with a higher --max-quota',
      },
    );
  }
}
