import { CayError, type Limits, type Quota } from '@cay/sdk/protocol';
import type { Usage } from '../../records/tables/sandbox-row.ts';

/** The limits of a sandbox that are summed up for its project. */
export const SUMMED = ['cpus', 'memoryBytes', 'diskBytes', 'pids'] as const;
export type Summed = Pick<Limits, (typeof SUMMED)[number]>;

const WORDS: Record<keyof Quota, string> = {
  sandboxes: 'sandboxes',
  cpus: 'CPUs',
  memoryBytes: 'bytes of memory',
  diskBytes: 'bytes of disk',
  pids: 'processes',
  snapshots: 'snapshots',
  snapshotBytes: 'bytes of snapshots and memory images',
  volumes: 'volumes',
  volumeBytes: 'bytes of volumes',
  uploadBytes: 'bytes of uploads and imports',
  imageBytes: 'bytes of images',
  logBytes: 'bytes of command logs and results of tools',
  buckets: 'buckets',
  bucketMounts: 'mounts of buckets',
  bucketMountBytes: 'bytes in mounts of buckets that are not in the bucket yet',
  webhooks: 'webhooks',
  secrets: 'secrets',
  secretBytes: 'bytes of secrets',
  templates: 'names of templates',
  idempotencyKeys: 'idempotency keys',
  previewConnections: 'connections to previews',
  publishedPorts: 'published ports',
  egressConnections: 'connections out of sandboxes',
  egressBufferBytes: 'bytes that the server holds for connections out of sandboxes',
};

const HINTS: Partial<Record<keyof Quota, string>> = {
  snapshots: 'remove snapshots that are not needed, let a retention do it, or have the quota raised',
  snapshotBytes: 'remove snapshots that are not needed, let a retention do it, or have the quota raised',
  volumes: 'remove volumes that are not needed, or have the quota raised',
  volumeBytes: 'remove volumes that are not needed, ask for a smaller size, or have the quota raised',
  uploadBytes: 'wait for what is under way, send less, or have the quota raised',
  logBytes: 'end commands that are left running and write much, or have the quota raised',
  bucketMounts: 'stop sandboxes that mount buckets, use copies, or have the quota raised',
  bucketMountBytes: 'close files that are written, wait until the bucket has them, or have the quota raised',
  webhooks: 'remove one first, or have the quota raised',
  secrets: 'remove secrets that are not needed, or have the quota raised',
  secretBytes: 'remove secrets that are not needed, or have the quota raised',
  templates: 'remove templates or tags that are not needed, or have the quota raised',
  idempotencyKeys:
    'a key is remembered for seven days, that of a command as long as its sandbox exists; ' +
    'remove sandboxes that are not needed, call without a key, or have the quota raised',
  previewConnections: 'close some, or have the quota raised',
  publishedPorts: 'unpublish one first, or have the quota raised',
};

/** What a project uses of one quota, in all and by source. */
export interface Used {
  used: number;
  by: Record<string, number>;
}

/**
 * Throws `resource_exhausted` if a project would go beyond one quota. `asked` is null for an unlimited
 * amount.
 */
export function requireRoom(quota: Quota, key: keyof Quota, { used, by }: Used, asked: number | null): void {
  const limit = quota[key];
  if (limit === null || (asked !== null && used + asked <= limit)) return;
  const more = asked === null ? 'an unlimited amount' : asked;
  throw new CayError(
    'resource_exhausted',
    `The project's quota of ${limit} ${WORDS[key]} does not allow ${more} more: ${used} are in use`,
    {
      details: { quota: key, limit, used, asked, usedBy: by },
      hint: HINTS[key] ?? 'remove sandboxes that are not needed, ask for less, or have the quota raised',
    },
  );
}

/**
 * Throws `resource_exhausted` if a sandbox would take its project beyond the quota. A sandbox without a limit
 * takes an unknown amount, so it is refused wherever the quota has one.
 */
export function requireQuota(
  quota: Quota,
  usage: Usage,
  wanted: { sandboxes: number; limits: Summed },
): void {
  const { sandboxes } = usage;
  requireRoom(quota, 'sandboxes', { used: sandboxes, by: { sandboxes } }, wanted.sandboxes);
  for (const key of SUMMED)
    requireRoom(quota, key, { used: usage[key], by: { sandboxes: usage[key] } }, wanted.limits[key]);
}
