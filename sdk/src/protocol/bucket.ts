import { z } from 'zod';
import { SecretNameSchema } from './egress.ts';
import { MountPathSchema, SubpathSchema } from './mount.ts';

export const BucketNameSchema = z
  .string()
  .regex(
    /^[A-Za-z0-9][A-Za-z0-9_.-]{0,62}$/,
    'must be 1 to 63 of letters, digits and _ . - and begin with a letter or digit',
  );

const PrefixSchema = z.string().max(512).describe('Objects whose keys begin so, up to a slash. Absent: all.');

/**
 * A Bucket is a place for files on an S3 server, under a name of the project. Its credentials are secrets of
 * the project; the server uses them outside of sandboxes.
 */
export const CreateBucketSchema = z
  .object({
    name: BucketNameSchema,
    bucket: z.string().min(3).max(63).describe('Its name on the S3 server.'),
    prefix: PrefixSchema.optional(),
    region: z.string().max(63).optional().describe('Absent: us-east-1.'),
    endpoint: z
      .string()
      .max(512)
      .optional()
      .describe(
        'The address of the S3 server. Absent: that of AWS in the region. Private ones need the operator.',
      ),
    style: z
      .enum(['path', 'host'])
      .optional()
      .describe("Whether its name is in the path or in the host's name."),
    accessKeyId: z
      .string()
      .max(256)
      .regex(/^[\x21-\x7e]+$/, 'must be printable characters without spaces'),
    secret: SecretNameSchema.describe('The stored secret that has the secret access key.'),
    sessionToken: SecretNameSchema.optional().describe('The stored secret that has the session token.'),
    readOnly: z.boolean().default(false).describe('Nothing is ever written to it.'),
  })
  .strict();
export type CreateBucket = z.infer<typeof CreateBucketSchema>;
export type CreateBucketInput = z.input<typeof CreateBucketSchema>;

export const BucketSchema = CreateBucketSchema.extend({ createdAtMs: z.int() }).strip();
export type BucketInfo = z.infer<typeof BucketSchema>;
export const BucketListSchema = z.object({ buckets: z.array(BucketSchema) });

export const BucketObjectSchema = z.object({
  key: z.string().describe("Behind the bucket's prefix. One that ends with a slash stands for all below it."),
  sizeBytes: z.int(),
  etag: z.string(),
  modifiedAtMs: z.int(),
});
export const ListObjectsSchema = z
  .object({
    prefix: z.string().max(1024).default(''),
    recursive: z.stringbool().default(false).describe('Lists all below, and no folders.'),
    limit: z.coerce.number().int().min(1).max(10_000).default(1000),
  })
  .strict();
export const ObjectListSchema = z.object({
  objects: z.array(BucketObjectSchema),
  more: z.boolean().describe('Whether there are more than `limit`.'),
});
export type ObjectList = z.infer<typeof ObjectListSchema>;

/** What a copy between a bucket and a sandbox did. */
export const TransferSchema = z.object({
  files: z.int(),
  bytes: z.int(),
  removed: z.int(),
  skipped: z.int().describe('What is no file: symlinks, sockets, devices.'),
});
export type Transfer = z.infer<typeof TransferSchema>;

export const CopySchema = z
  .object({
    sandbox: z.string().min(1).max(80).describe('Its name or its id.'),
    path: MountPathSchema.describe('A directory of the sandbox.'),
    prefix: SubpathSchema.optional().describe("Below the bucket's own prefix."),
  })
  .strict();
export type Copy = z.infer<typeof CopySchema>;

export const SignObjectSchema = z
  .object({
    key: z.string().min(1).max(1024),
    method: z.enum(['GET', 'PUT']).default('GET'),
    expiresSeconds: z
      .int()
      .min(1)
      .max(7 * 24 * 3600)
      .default(3600),
  })
  .strict();
export type SignObjectInput = z.input<typeof SignObjectSchema>;
export const SignedObjectSchema = z.object({ url: z.string(), expiresAtMs: z.int() });
export type SignedObject = z.infer<typeof SignedObjectSchema>;

/** A bucket whose files a sandbox has a copy of. */
export const BucketSyncSchema = z
  .object({
    bucket: BucketNameSchema,
    path: MountPathSchema.describe('The directory that has the copy.'),
    prefix: SubpathSchema.optional().describe("Below the bucket's own prefix."),
    direction: z
      .enum(['both', 'down', 'up'])
      .default('both')
      .describe(
        '`down`: objects become files before the sandbox starts. `up`: files that changed become objects at every turn, and before the sandbox is stopped or removed.',
      ),
    onConflict: z
      .enum(['fail', 'bucket', 'sandbox'])
      .default('fail')
      .describe('What happens to a file that changed on both sides: an error, or one side wins.'),
    deletions: z
      .boolean()
      .default(false)
      .describe('Whether what was removed on one side is removed on the other.'),
  })
  .strict();
export type BucketSync = z.infer<typeof BucketSyncSchema>;

export const BucketSyncsSchema = z
  .array(BucketSyncSchema)
  .max(8)
  .refine(
    (syncs) =>
      syncs.every(({ path }, index) =>
        syncs.every((other, at) => at === index || !`${path}/`.startsWith(`${other.path}/`)),
      ),
    'must not have one path at or below another',
  );

export const SyncStateSchema = BucketSyncSchema.extend({
  pending: z.boolean().describe('Whether the sandbox may have changes that the bucket does not have.'),
  files: z.int().describe('How many are the same on both sides, as far as is known.'),
  syncedAtMs: z.int().nullable(),
  error: z.string().nullable().describe('Why the last attempt failed.'),
}).strip();
export type SyncState = z.infer<typeof SyncStateSchema>;

/** A mount of a bucket, and which of its files the bucket does not have yet. */
export const BucketMountStateSchema = z.object({
  bucket: z.string(),
  path: z.string(),
  prefix: z.string().optional(),
  readOnly: z.boolean(),
  ended: z.boolean().describe('The sandbox runs no more, and the server goes on to write what it has left.'),
  unwrittenFiles: z.int().describe('Files that programs have changed and the bucket does not have yet.'),
  unwrittenBytes: z.int(),
  error: z.string().nullable().describe('Why the last attempt to write one of them failed.'),
});
export type BucketMountState = z.infer<typeof BucketMountStateSchema>;
export const SyncStatesSchema = z.object({
  buckets: z.array(SyncStateSchema),
  mounts: z.array(BucketMountStateSchema).default([]),
});
export type SyncStates = z.infer<typeof SyncStatesSchema>;
