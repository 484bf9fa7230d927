import { z } from 'zod';

const Count = z.int().min(0).nullable();

/** What a project may use in all. Null means the operator's default, which may be no limit. */
const QUOTAS = {
  sandboxes: Count.describe('Sandboxes of every state.'),
  cpus: z
    .number()
    .min(0)
    .nullable()
    .describe('The sum of the limits of sandboxes that run. A frozen sandbox still counts its memory.'),
  memoryBytes: Count.describe('The sum of the limits of sandboxes whose memory is in use.'),
  pids: Count.describe('The sum of the limits of sandboxes that have processes.'),
  diskBytes: Count.describe('The sum of the limits of all sandboxes.'),
  snapshots: Count,
  snapshotBytes: Count.describe(
    'Files and memory images of snapshots, and memory images of hibernated sandboxes.',
  ),
  volumes: Count.describe('Volumes, and snapshots of volumes.'),
  volumeBytes: Count.describe(
    'The sum of the sizes of volumes, and what snapshots of volumes take. A volume without a size is refused.',
  ),
  uploadBytes: Count.describe(
    'Files for builds, unfinished uploads, archives that are being imported, and what is remembered of syncs.',
  ),
  imageBytes: Count.describe('Images that the project pulled, imported or made sandboxes from.'),
  logBytes: Count.describe('Recorded output of commands, and kept results of tool calls.'),
  buckets: Count.describe('Buckets that have a name in the project.'),
  bucketMounts: Count.describe('Mounts of buckets in sandboxes that run.'),
  bucketMountBytes: Count.describe(
    'Files in mounts of buckets that are open for writing or that the bucket does not have yet.',
  ),
  webhooks: Count,
  secrets: Count.describe('Stored secrets.'),
  secretBytes: Count.describe('The values of stored secrets.'),
  templates: Count.describe('Names of templates. Each tag counts.'),
  idempotencyKeys: Count.describe('Idempotency keys of calls and commands. Each is kept for seven days.'),
  previewConnections: Count.describe('Connections to previews and published ports that are open at once.'),
  publishedPorts: Count.describe("Ports of the server's machine that lead to sandboxes."),
  egressConnections: Count.describe('Connections out of sandboxes that are open at once.'),
  egressBufferBytes: Count.describe('Bytes of such connections that the server holds at once.'),
};

export const QuotaSchema = z
  .object({
    sandboxes: QUOTAS.sandboxes.default(null),
    cpus: QUOTAS.cpus.default(null),
    memoryBytes: QUOTAS.memoryBytes.default(null),
    pids: QUOTAS.pids.default(null),
    diskBytes: QUOTAS.diskBytes.default(null),
    snapshots: QUOTAS.snapshots.default(null),
    snapshotBytes: QUOTAS.snapshotBytes.default(null),
    volumes: QUOTAS.volumes.default(null),
    volumeBytes: QUOTAS.volumeBytes.default(null),
    uploadBytes: QUOTAS.uploadBytes.default(null),
    imageBytes: QUOTAS.imageBytes.default(null),
    logBytes: QUOTAS.logBytes.default(null),
    buckets: QUOTAS.buckets.default(null),
    bucketMounts: QUOTAS.bucketMounts.default(null),
    bucketMountBytes: QUOTAS.bucketMountBytes.default(null),
    webhooks: QUOTAS.webhooks.default(null),
    secrets: QUOTAS.secrets.default(null),
    secretBytes: QUOTAS.secretBytes.default(null),
    templates: QUOTAS.templates.default(null),
    idempotencyKeys: QUOTAS.idempotencyKeys.default(null),
    previewConnections: QUOTAS.previewConnections.default(null),
    publishedPorts: QUOTAS.publishedPorts.default(null),
    egressConnections: QUOTAS.egressConnections.default(null),
    egressBufferBytes: QUOTAS.egressBufferBytes.default(null),
  })
  .strict();
/** Some of the quotas. An absent one is left as it is. */
export const SomeQuotaSchema = z.object(QUOTAS).partial().strict();
export type SomeQuota = z.infer<typeof SomeQuotaSchema>;
export type Quota = z.infer<typeof QuotaSchema>;

/** What a project uses of each quota. A limit of null means none. */
export const ProjectUsageSchema = z.record(
  z.string(),
  z.object({ used: z.number(), limit: z.number().nullable() }),
);
export type ProjectUsage = z.infer<typeof ProjectUsageSchema>;
