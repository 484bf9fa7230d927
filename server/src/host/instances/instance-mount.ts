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
    kind: z.literal('tmpfs'),
    target: z.string(),
    sizeBytes: z.number().optional(),
    mode: z.string(),
    noexec: z.boolean(),
  }),
]);
export type InstanceMount = z.infer<typeof InstanceMountSchema>;

/** The directories of the host that a container gets. Rejects `not_found` for a volume that is gone. */
export function mountsOf(
  { trees }: Pick<HostResources, 'trees'>,
  mounts: readonly InstanceMount[],
): Promise<ContainerMount[]> {
  return Promise.all(
    mounts.map(async (mount): Promise<ContainerMount> => {
      if (mount.kind === 'tmpfs') return mount;
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
