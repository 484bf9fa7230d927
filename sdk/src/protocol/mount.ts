import { z } from 'zod';

const MiB = 1024 * 1024;

/** Paths that the sandbox itself needs, with everything below them. */
const RESERVED = ['/proc', '/sys', '/dev', '/run/cay', '/run/cay-guest'];
/** Paths that have something reserved below them. */
const RESERVED_EXACTLY = ['/', '/run'];

const CONTROL = /\p{Cc}/u;
const isPlain = (path: string) =>
  path.split('/').every((part) => part !== '' && part !== '.' && part !== '..') && !CONTROL.test(path);

export const MountPathSchema = z
  .string()
  .max(1024)
  .refine(
    (path) => path.startsWith('/') && isPlain(path.slice(1)),
    'must be an absolute path without ".", ".." and doubled or trailing slashes',
  )
  .refine(
    (path) =>
      !RESERVED_EXACTLY.includes(path) &&
      !RESERVED.some((reserved) => path === reserved || path.startsWith(`${reserved}/`)),
    `must not be ${RESERVED_EXACTLY.join(' or ')}, nor at or below ${RESERVED.join(', ')}`,
  )
  .describe('Where it is in the sandbox. The directory is made if it is missing. No symlink may lead to it.');

export const SubpathSchema = z
  .string()
  .max(1024)
  .refine(isPlain, 'must be a relative path without ".", ".." and doubled or trailing slashes');

/** How a volume is named in a request: its name or its id. */
export const VolumeRefSchema = z
  .string()
  .regex(
    /^[A-Za-z0-9][A-Za-z0-9_.-]{0,62}$/,
    'must be 1 to 63 of letters, digits and _ . - and begin with a letter or digit',
  );

export const VolumeMountSchema = z
  .object({
    type: z.literal('volume'),
    volume: VolumeRefSchema.describe('The name or the id of a volume. Answers have its id.'),
    name: z.string().optional().describe('The name of the volume, in answers.'),
    path: MountPathSchema,
    readOnly: z.boolean().default(false),
    subpath: SubpathSchema.optional().describe(
      'The directory of the volume that is mounted; absent: all of it. It is made if it is missing, unless it is read-only. No symlink is followed to it.',
    ),
  })
  .strict();

export const TmpfsMountSchema = z
  .object({
    type: z.literal('tmpfs'),
    path: MountPathSchema,
    sizeBytes: z
      .int()
      .min(64 * 1024)
      .max(64 * 1024 * 1024 * MiB)
      .optional()
      .describe('What is written to it counts as memory of the sandbox. Absent: the memory limit bounds it.'),
    mode: z
      .string()
      .regex(/^[01]?[0-7]{3}$/, 'must be a mode such as "1777" or "700"')
      .default('1777'),
    noexec: z.boolean().default(false),
  })
  .strict();

export const HostMountSchema = z
  .object({
    type: z.literal('host'),
    source: z
      .string()
      .max(1024)
      .refine((path) => path.startsWith('/') && isPlain(path.slice(1)), 'must be an absolute path')
      .describe(
        "A directory of the machine, below a path that the operator allows. Symlinks aren't followed.",
      ),
    path: MountPathSchema,
    readOnly: z.boolean().default(true),
  })
  .strict();

export const BucketMountSchema = z
  .object({
    type: z.literal('bucket'),
    bucket: z
      .string()
      .regex(/^[A-Za-z0-9][A-Za-z0-9_.-]{0,62}$/, 'must be the name of a bucket of the project')
      .describe('A bucket of the project, by its name.'),
    prefix: SubpathSchema.optional().describe("Below the bucket's own prefix."),
    path: MountPathSchema,
    readOnly: z.boolean().default(false),
  })
  .strict();

/**
 * Something that is mounted in a sandbox beside its own disk. Snapshots, forks and rollbacks leave it alone.
 */
export const MountSchema = z.discriminatedUnion('type', [
  VolumeMountSchema,
  TmpfsMountSchema,
  HostMountSchema,
  BucketMountSchema,
]);
export type Mount = z.infer<typeof MountSchema>;
export type VolumeMount = z.infer<typeof VolumeMountSchema>;
export type TmpfsMount = z.infer<typeof TmpfsMountSchema>;
export type HostMount = z.infer<typeof HostMountSchema>;
export type BucketMount = z.infer<typeof BucketMountSchema>;

export const MountsSchema = z
  .array(MountSchema)
  .max(32)
  .superRefine((mounts, context) => {
    for (const [index, { path }] of mounts.entries()) {
      const other = mounts.find(
        (each, at) => at !== index && (path === each.path || path.startsWith(`${each.path}/`)),
      );
      if (other)
        context.addIssue({
          code: 'custom',
          path: [index, 'path'],
          message: `must not be at or below "${other.path}", where something else is mounted`,
        });
    }
  });
