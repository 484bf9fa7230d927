import { readdir } from 'node:fs/promises';
import { join } from 'node:path';
import { CayError, type SandboxId } from '@cay/sdk/protocol';
import { z } from 'zod';
import type { ContainerMount } from '../runtimes/runtime.ts';
import type { HostResources } from '../host-resources.ts';

/** A mount as an instance remembers it: a volume by its tree, whose directory may change with a restart. */
export const InstanceMountSchema = z.discriminatedUnion('kind', [
  z.object({
    kind: z.literal('volume'),
    tree: z.string(),
    committed: z.boolean(),
    subpath: z.string().optional(),
    target: z.string(),
    readOnly: z.boolean(),
  }),
  z.object({
    kind: z.literal('host'),
    /** What the operator allows, and the way from there. */
    allowed: z.string(),
    subpath: z.string().optional(),
    target: z.string(),
    readOnly: z.boolean(),
  }),
  z.object({
    kind: z.literal('bucket'),
    /** Absent in what is only checked. */
    sandbox: z
      .string()
      .transform((id) => id as SandboxId)
      .optional(),
    bucket: z.string(),
    prefix: z.string().optional(),
    target: z.string(),
    readOnly: z.boolean(),
    /** Whose files they seem to be, by an id inside. */
    owner: z.int(),
  }),
  z.object({
    kind: z.literal('tmpfs'),
    target: z.string(),
    sizeBytes: z.number().optional(),
    mode: z.string(),
    noexec: z.boolean(),
  }),
]);
export type InstanceMount = z.infer<typeof InstanceMountSchema>;

/** Where an instance has its mounts of buckets. */
export function bucketsOf(instanceDir: string): string {
  return join(instanceDir, 'buckets');
}

/** Of all instances. */
export async function allBucketDirectories(hostDir: string): Promise<string[]> {
  const instances = join(hostDir, 'instances');
  const found: string[] = [];
  for (const instance of await readdir(instances).catch(() => [])) {
    const buckets = bucketsOf(join(instances, instance));
    for (const name of await readdir(buckets).catch(() => [])) found.push(join(buckets, name));
  }
  return found;
}

/**
 * The directories of the host that a container gets. Mounts its buckets, which end with `bucketMounts.end`.
 * Rejects `not_found` for a volume or a bucket that is gone.
 */
export function mountsOf(
  { trees, bucketMounts }: Pick<HostResources, 'trees' | 'bucketMounts'>,
  mounts: readonly InstanceMount[],
  { dir, hostId, closesLate }: { dir: string; hostId: number; closesLate: boolean },
): Promise<ContainerMount[]> {
  return Promise.all(
    mounts.map(async (mount, index): Promise<ContainerMount> => {
      if (mount.kind === 'tmpfs') return mount;
      if (mount.kind === 'bucket') {
        const { sandbox, bucket, prefix, target, readOnly } = mount;
        if (!bucketMounts || sandbox === undefined)
          throw new CayError('unsupported', `Cannot mount bucket "${bucket}": the server opens no buckets`);
        const id = hostId + mount.owner;
        const owner = { uid: id, gid: id };
        const facts = { sandbox, bucket, prefix, path: target, readOnly, owner, closesLate };
        const source = await bucketMounts.begin(join(bucketsOf(dir), String(index)), facts);
        return {
          kind: 'directory',
          source,
          target,
          readOnly,
          subpath: undefined,
          shifted: false,
          makes: false,
        };
      }
      const { subpath, target, readOnly } = mount;
      const common = { kind: 'directory' as const, subpath, target };
      if (mount.kind === 'host')
        return { ...common, source: mount.allowed, readOnly, shifted: false, makes: false };
      const { tree, committed } = mount;
      return {
        ...common,
        source: await (committed ? trees.committedPath(tree) : trees.path(tree)),
        readOnly: readOnly || committed,
        shifted: true,
        makes: !readOnly && !committed,
      };
    }),
  );
}
