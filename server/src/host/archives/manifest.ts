import { SandboxIdSchema, SandboxSpecSchema, SnapshotIdSchema } from '@cay/sdk/protocol';
import { z } from 'zod';

/** Names of files of a memory image, as the runtime chose them. */
const ImageNameSchema = z
  .string()
  .regex(/^[A-Za-z0-9][A-Za-z0-9_.-]{0,63}$/, 'must be 1 to 64 of letters, digits and _ . -');

/** What an archive says about itself, before anything else in it. */
export const ManifestSchema = z
  .object({
    format: z.literal('cay-snapshot'),
    /** Grows when an older reader could not read it. */
    version: z.literal(1),
    compression: z.enum(['zstd', 'none']),
    snapshot: SnapshotIdSchema,
    sandbox: SandboxIdSchema,
    spec: SandboxSpecSchema,
    runtime: z.string().max(64).nullable(),
    /** Absent where there is none. */
    memory: z
      .object({
        /** What the runtime says an image needs to be revived. */
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

/** A spec may have a large environment, but not any. */
export const MAX_MANIFEST_BYTES = 4 * 1024 * 1024;
