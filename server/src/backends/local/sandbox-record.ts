/**
 * What the local backend remembers of a sandbox. It says which instance, which tree and which image are the
 * sandbox's, so that the next server can distinguish them from orphans.
 *
 * | phase | instance | memory | what it means after a crash |
 * |---|---|---|---|
 * | `starting` | yes | no | the start is undone: it is stopped, or absent if this was its first incarnation |
 * | `starting` | yes | yes | it is being restored: a guest that answers is adopted, else see below |
 * | `ready` | yes | no | taken up if its processes live |
 * | `ready` | yes | yes | it is being hibernated: the image is not whole, and dropped |
 * | `hibernated` | maybe | yes | the image is complete; an instance that is left is removed |
 * | `stopped`, `failed` | maybe | no | no processes; an instance that is left is removed |
 * | `removing` | maybe | maybe | the removal is finished |
 *
 * A restore that nobody answers is hibernated again, or absent if this was its first incarnation.
 * `stopping` beside `ready`: if its processes are gone they were ended, and did not end by themselves.
 * `next` beside any of them is a rollback that has not happened: what it had begun to make is removed.
 */
import { SandboxIdSchema, SandboxSpecSchema, SnapshotIdSchema, type SandboxId } from '@cay/sdk/protocol';
import { z } from 'zod';
import { ImageOriginSchema } from '../../host/templates/template.ts';
import type { Observation } from '../backend.ts';
import type { SealedBox } from '../../lib/sealed-box.ts';
import { openJsonRecords, type JsonRecords } from '../../host/json-records.ts';
import { hasOpenEnv, withOpenedEnv, withSealedEnv } from './sealed-env.ts';

/**
 * What a sandbox has of its template: the tree that its own was cloned from, and the directories of the host
 * that are shown in it. The records on disk call it `footing`.
 */
export const TemplatePartsSchema = z.object({
  templateTree: z.string(),
  binds: z.array(z.object({ source: z.string(), target: z.string(), readOnly: z.boolean() })),
  /** The image that the template is, if it is one. */
  image: ImageOriginSchema.optional(),
});
export type TemplateParts = z.infer<typeof TemplatePartsSchema>;

const SandboxRecordSchema = z.object({
  id: SandboxIdSchema,
  spec: SandboxSpecSchema,
  /** Its environment, sealed: only on the disk, or where the key is not known. */
  sealedEnv: z.string().optional(),
  phase: z.enum(['starting', 'ready', 'stopped', 'hibernated', 'failed', 'removing']),
  incarnation: z.int().min(1),
  runtime: z.string(),
  /** Its hostname. Absent in records of earlier servers. */
  hostname: z.string().optional(),
  /** Absent while the sandbox has no processes. */
  instance: z.string().optional(),
  /** The active tree that is its disk. */
  tree: z.string(),
  /** Absent in records of servers that did not keep it: then it is the template's of today. */
  footing: TemplatePartsSchema.optional(),
  /** The snapshot that its tree was made from, if it was not the template. */
  parent: SnapshotIdSchema.optional(),
  /** Its processes are kept from running. */
  frozen: z.boolean().default(false),
  /** It is being stopped. */
  stopping: z.boolean().optional(),
  /** Its processes on disk: an image of its own, or that of a snapshot. */
  memory: z
    .object({
      image: z.string(),
      compatibility: z.string(),
      snapshot: SnapshotIdSchema.optional(),
      bytes: z.number().optional(),
    })
    .optional(),
  next: z.object({ instance: z.string().optional(), tree: z.string(), parent: SnapshotIdSchema }).optional(),
  reason: z.enum(['oom_killed', 'crashed', 'start_failed', 'host_restarted', 'removed_outside']).optional(),
  message: z.string().optional(),
});
export type SandboxRecord = z.infer<typeof SandboxRecordSchema>;

export type SandboxRecords = JsonRecords<SandboxId, SandboxRecord>;

export function openSandboxRecords(dir: string, box?: SealedBox): Promise<SandboxRecords> {
  return openJsonRecords(dir, {
    schema: SandboxRecordSchema,
    noun: 'sandbox',
    toDisk: (record) => withSealedEnv(record, box),
    fromDisk: (record) => withOpenedEnv(record, box),
    outdated: (record) => box !== undefined && hasOpenEnv(record),
  });
}

/** A record as those outside of this backend see it. */
export function observationOf(record: SandboxRecord): Observation {
  const { id, incarnation, instance, runtime, frozen, reason, message, memory } = record;
  const phase = record.phase === 'removing' ? 'stopped' : record.phase;
  return {
    id,
    phase,
    incarnation,
    ...(instance !== undefined && { uid: instance }),
    ...(phase === 'ready' && { runtime }),
    ...(phase === 'ready' && frozen && { frozen }),
    ...(reason && { reason }),
    ...(message && { message }),
    ...(phase === 'hibernated' && memory?.bytes !== undefined && { imageBytes: memory.bytes }),
  };
}
