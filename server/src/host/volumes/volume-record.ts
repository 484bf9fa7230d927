import { VolumeIdSchema, type VolumeId } from '@cay/sdk/protocol';
import { z } from 'zod';
import { openJsonRecords, type JsonRecords } from '../json-records.ts';

/**
 * What the store remembers of a volume.
 *
 * | state | what it means after a crash |
 * |---|---|
 * | `making` | its trees are removed, and it never was |
 * | `kept` | it is there |
 * | `removing` | callers do not see it; its tree is removed once no clone descends from it |
 */
const VolumeRecordSchema = z.object({
  id: VolumeIdSchema,
  state: z.enum(['making', 'kept', 'removing']),
  tree: z.string(),
  readOnly: z.boolean(),
  sizeBytes: z.number().nullable(),
  from: VolumeIdSchema.optional(),
  /** The committed tree between a volume and its clone, and the clone's own. */
  base: z.string().optional(),
  /** What a clone or a snapshot had when it was made. Null if nobody counts. */
  baseBytes: z.number().nullable(),
});
export type VolumeRecord = z.infer<typeof VolumeRecordSchema>;
export type VolumeRecords = JsonRecords<VolumeId, VolumeRecord>;

export function openVolumeRecords(dir: string): Promise<VolumeRecords> {
  return openJsonRecords(dir, { schema: VolumeRecordSchema, noun: 'volume' });
}
