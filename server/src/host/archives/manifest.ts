import { SandboxIdSchema, SandboxSpecSchema, SnapshotIdSchema } from '@cay/sdk/protocol';
import { z } from 'zod';

/** Names of files of a memory image, as the runtime chose them. */
const ImageNameSchema = z
  .string()
  .regex(/^[A-Za-z0-9][A-Za-z0-9_.-]{0,63}$/, 'must be 1 to 64 of letters, digits and _ . -');

/** The description of an archive, its first part. */
export const ManifestSchema = z
  .object({
    format: z.literal('cay-snapshot'),
    /** Incremented when an older reader could not read the format. */
    version: z.literal(1),
    compression: z.enum(['zstd', 'none']),
    snapshot: SnapshotIdSchema,
    sandbox: SandboxIdSchema,
    spec: SandboxSpecSchema,
    runtime: z.string().max(64).nullable(),
    /**
     * Whether the tree has all files of a root. Without it, the template shows files of the host beside it.
     */
    whole: z.literal(true).optional(),
    /** The tree has the directories that programs write and nothing else: the rest is the template's. */
    part: z.literal(true).optional(),
    /** Absent where there is none. */
    memory: z
      .object({
        /** The runtime's `compatibility` of the memory image. */
        compatibility: z.string().max(4096),
        files: z
          .array(z.object({ name: ImageNameSchema, bytes: z.int().min(0) }).strict())
          .min(1)
          .max(64)
          .refine(
            (files) => new Set(files.map(({ name }) => name)).size === files.length,
            'must have different names',
          ),
      })
      .strict()
      .optional(),
  })
  .strict();
export type Manifest = z.infer<typeof ManifestSchema>;

/** A spec may have a large environment, within this bound. */
export const MAX_MANIFEST_BYTES = 4 * 1024 * 1024;
