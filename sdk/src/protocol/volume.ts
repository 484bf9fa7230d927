import { z } from 'zod';
import { SandboxIdSchema, VolumeIdSchema } from './id.ts';
import { VolumeRefSchema } from './mount.ts';
import { LabelsSchema, PlatformNameSchema } from './spec.ts';

const MiB = 1024 * 1024;

export const VolumeNameSchema = VolumeRefSchema.refine(
  (name) => !name.startsWith('vol_'),
  'must not look like an id',
);

const SizeSchema = z
  .int()
  .min(16 * MiB)
  .max(1024 * 1024 * 1024 * MiB)
  .nullable();

/**
 * A Volume is a directory of its own that outlives sandboxes, and that several can mount at once. It belongs
 * to a project. What a sandbox does to itself (stop, rollback, fork, snapshot) does not touch it.
 *
 * A *snapshot* of a volume is a volume that never changes: it can be mounted read-only, cloned and exported.
 */
export const VolumeSchema = z.object({
  id: VolumeIdSchema,
  name: z.string(),
  project: z.string(),
  platform: z.string().optional().describe('The platform that it is on, if the server has several.'),
  readOnly: z.boolean().describe('Whether it is a snapshot, which never changes.'),
  sizeBytes: z
    .int()
    .nullable()
    .describe('The most that may be written to it; null if nothing but the disk bounds it.'),
  usedBytes: z
    .int()
    .nullable()
    .describe(
      'What its files take, those included that it shares with the volume it was cloned from. Null where that is not counted.',
    ),
  from: VolumeIdSchema.nullable().describe('The volume that it was cloned from, which may be gone.'),
  labels: LabelsSchema,
  createdAtMs: z.int(),
  mountedBy: z
    .array(
      z.object({
        sandbox: SandboxIdSchema,
        name: z.string().nullable(),
        path: z.string(),
        readOnly: z.boolean(),
      }),
    )
    .describe(
      'The sandboxes that have it, whether they run or not. It cannot be removed while there are any.',
    ),
});
export type Volume = z.infer<typeof VolumeSchema>;

export const CreateVolumeSchema = z
  .object({
    name: VolumeNameSchema,
    sizeBytes: SizeSchema.optional().describe(
      "Absent: the size of `from`, or the operator's default where the platform can enforce one. Null: no limit.",
    ),
    from: VolumeRefSchema.optional().describe('A volume whose present content it begins with.'),
    readOnly: z.boolean().default(false).describe('With `from`: a snapshot of it, which never changes.'),
    labels: LabelsSchema.default({}),
    platform: PlatformNameSchema.optional().describe(
      'Which of several platforms has it. Absent: that of `from`, or the default.',
    ),
  })
  .strict();
export type CreateVolume = z.infer<typeof CreateVolumeSchema>;
export type CreateVolumeInput = z.input<typeof CreateVolumeSchema>;

export const ImportVolumeSchema = z
  .object({
    name: VolumeNameSchema,
    sizeBytes: z.coerce
      .number()
      .int()
      .min(16 * MiB)
      .optional(),
    platform: PlatformNameSchema.optional(),
  })
  .strict();
export type ImportVolume = z.infer<typeof ImportVolumeSchema>;

export const VolumePageSchema = z.object({ volumes: z.array(VolumeSchema) });
export type VolumePage = z.infer<typeof VolumePageSchema>;
