/**
 * What the local backend remembers of a snapshot: `taking` before anything of it is made, `kept` when it is
 * whole, `removing` before anything of it is taken away. What is not `kept` when a server starts is taken
 * away.
 */
import {
  CayError,
  SandboxIdSchema,
  SandboxSpecSchema,
  SnapshotIdSchema,
  type SnapshotId,
} from '@cay/sdk/protocol';
import { z } from 'zod';
import type { SnapshotFacts } from '../backend.ts';
import type { SealedBox } from '../../lib/sealed-box.ts';
import { openJsonRecords, type JsonRecords } from '../../host/json-records.ts';
import { hasOpenEnv, withOpenedEnv, withSealedEnv } from './sealed-env.ts';
import { TemplatePartsSchema } from './sandbox-record.ts';

const SnapshotRecordSchema = z.object({
  id: SnapshotIdSchema,
  /** The sandbox that it was taken of. */
  sandbox: SandboxIdSchema,
  spec: SandboxSpecSchema,
  /** Its environment, sealed: only on the disk, or where the key is not known. */
  sealedEnv: z.string().optional(),
  state: z.enum(['taking', 'kept', 'removing']),
  /** The committed tree that has its files. */
  tree: z.string(),
  footing: TemplatePartsSchema,
  /** The runtime of the sandbox: whose ids the files belong to, and whose processes are in the image. */
  runtime: z.string(),
  /** Its processes, if they were kept, and what is needed to revive them. */
  memory: z.object({ image: z.string(), compatibility: z.string() }).optional(),
  /** The active tree that it was copied from, and what that had written by then. */
  source: z.string().optional(),
  writtenBytes: z.number().optional(),
  /** What its files and its processes take on disk; absent in records of earlier versions. */
  fileBytes: z.number().optional(),
  memoryBytes: z.number().optional(),
});
export type SnapshotRecord = z.infer<typeof SnapshotRecordSchema>;

export type SnapshotRecords = JsonRecords<SnapshotId, SnapshotRecord>;

export function openSnapshotRecords(dir: string, box?: SealedBox): Promise<SnapshotRecords> {
  return openJsonRecords(dir, {
    schema: SnapshotRecordSchema,
    noun: 'snapshot',
    toDisk: (record) => withSealedEnv(record, box),
    fromDisk: (record) => withOpenedEnv(record, box),
    outdated: (record) => box !== undefined && hasOpenEnv(record),
  });
}

/** Rejects `not_found` also for an incomplete one: its caller has had no answer, or it is being removed. */
export function requireKept(snapshots: SnapshotRecords, id: SnapshotId): SnapshotRecord {
  const record = snapshots.get(id);
  if (record?.state === 'kept') return record;
  throw new CayError('not_found', `Snapshot "${id}" does not exist`);
}

/** A record as those outside of this backend see it. */
export function snapshotFactsOf({
  id,
  sandbox,
  spec,
  memory,
  runtime,
  fileBytes,
  memoryBytes,
}: SnapshotRecord): SnapshotFacts {
  return {
    id,
    sandbox,
    spec,
    memory: memory !== undefined,
    ...(memory && { runtime }),
    ...(fileBytes !== undefined && { fileBytes }),
    ...(memoryBytes !== undefined && { memoryBytes }),
  };
}
