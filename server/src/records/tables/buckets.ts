import {
  CayError,
  type BucketInfo,
  type BucketSync,
  type SandboxId,
  type SandboxSpec,
  type SyncState,
} from '@cay/sdk/protocol';
import type { TableContext } from './table-context.ts';

export interface SyncRow extends SyncState {
  sandbox: SandboxId;
}

/** Buckets of projects, and which sandboxes have copies of them. */
export interface BucketRecords {
  /** Rejects `already_exists`. */
  insert(project: string, bucket: BucketInfo): Promise<void>;
  get(project: string, name: string): Promise<BucketInfo | undefined>;
  /** By name. */
  list(project: string): Promise<BucketInfo[]>;
  count(project: string): Promise<number>;
  delete(project: string, name: string): Promise<void>;
  /** Sandboxes of the project that have a copy of it, or mount it. */
  usedBy(project: string, name: string): Promise<SandboxId[]>;
  attach(sandbox: SandboxId, sync: BucketSync): Promise<void>;
  detach(sandbox: SandboxId, path: string): Promise<boolean>;
  /** Those of a sandbox, by path. */
  syncs(sandbox: SandboxId): Promise<SyncRow[]>;
  /** What was the same on both sides after the last sync, as `saveBase` was given it. */
  base(sandbox: SandboxId, path: string): Promise<string | null>;
  /** What the bases of a project take. */
  baseBytes(project: string): Promise<number>;
  update(
    row: Pick<SyncRow, 'sandbox' | 'path'>,
    changes: Partial<Pick<SyncRow, 'pending' | 'files' | 'syncedAtMs' | 'error'>> & { base?: string },
  ): Promise<void>;
}

interface StoredSync {
  sandbox: SandboxId;
  path: string;
  config: string;
  pending: number;
  files: number;
  synced_at: number | null;
  error: string | null;
}

export function bucketTable({ sql }: TableContext): BucketRecords {
  return {
    async insert(project, bucket) {
      const inserted = await sql.run(
        'INSERT INTO buckets (project, name, config, created_at) VALUES (?, ?, ?, ?) ON CONFLICT DO NOTHING',
        ...[project, bucket.name, JSON.stringify(bucket), bucket.createdAtMs],
      );
      if (inserted === 0)
        throw new CayError('already_exists', `A bucket named "${bucket.name}" exists already`, {
          hint: 'choose another name, or remove it first',
        });
    },
    async get(project, name) {
      const row = await sql.get<{ config: string }>(
        'SELECT config FROM buckets WHERE project = ? AND name = ?',
        project,
        name,
      );
      return row && (JSON.parse(row.config) as BucketInfo);
    },
    async list(project) {
      const rows = await sql.all<{ config: string }>(
        'SELECT config FROM buckets WHERE project = ? ORDER BY name',
        project,
      );
      return rows.map(({ config }) => JSON.parse(config) as BucketInfo);
    },
    count: async (project) =>
      (await sql.get<{ count: number }>('SELECT count(*) AS count FROM buckets WHERE project = ?', project))!
        .count,
    async delete(project, name) {
      await sql.run('DELETE FROM buckets WHERE project = ? AND name = ?', project, name);
    },
    async usedBy(project, name) {
      const rows = await sql.all<{ sandbox: SandboxId }>(
        `SELECT DISTINCT b.sandbox FROM bucket_syncs b JOIN sandboxes s ON s.id = b.sandbox
         WHERE s.project = ? AND b.bucket = ? ORDER BY b.sandbox`,
        project,
        name,
      );
      const mounting = await sql.all<{ id: SandboxId; spec: string }>(
        `SELECT id, spec FROM sandboxes WHERE project = ? AND spec LIKE '%"type":"bucket"%' ORDER BY id`,
        project,
      );
      const mounts = ({ spec }: { spec: string }) =>
        ((JSON.parse(spec) as SandboxSpec).mounts ?? []).some(
          (mount) => mount.type === 'bucket' && mount.bucket === name,
        );
      const users = [...rows.map(({ sandbox }) => sandbox), ...mounting.filter(mounts).map(({ id }) => id)];
      return [...new Set(users)];
    },
    async attach(sandbox, sync) {
      await sql.run(
        'INSERT INTO bucket_syncs (sandbox, path, bucket, config, pending, files) VALUES (?, ?, ?, ?, 0, 0)',
        ...[sandbox, sync.path, sync.bucket, JSON.stringify(sync)],
      );
    },
    detach: async (sandbox, path) =>
      (await sql.run('DELETE FROM bucket_syncs WHERE sandbox = ? AND path = ?', sandbox, path)) > 0,
    async syncs(sandbox) {
      const rows = await sql.all<StoredSync>(
        `SELECT sandbox, path, config, pending, files, synced_at, error FROM bucket_syncs
         WHERE sandbox = ? ORDER BY path`,
        sandbox,
      );
      return rows.map(({ config, pending, files, synced_at: syncedAtMs, error }) => ({
        ...(JSON.parse(config) as BucketSync),
        sandbox,
        pending: pending === 1,
        files,
        syncedAtMs,
        error,
      }));
    },
    async base(sandbox, path) {
      const row = await sql.get<{ base: string | null }>(
        'SELECT base FROM bucket_syncs WHERE sandbox = ? AND path = ?',
        sandbox,
        path,
      );
      return row?.base ?? null;
    },
    async baseBytes(project) {
      const row = await sql.get<{ bytes: number | null }>(
        `SELECT sum(octet_length(b.base)) AS bytes FROM bucket_syncs b JOIN sandboxes s ON s.id = b.sandbox
         WHERE s.project = ?`,
        project,
      );
      return Number(row?.bytes ?? 0);
    },
    async update({ sandbox, path }, { pending, files, syncedAtMs, error, base }) {
      const columns: [string, string | number | null | undefined][] = [
        ['pending', pending === undefined ? undefined : pending ? 1 : 0],
        ['files', files],
        ['synced_at', syncedAtMs],
        ['error', error],
        ['base', base],
      ];
      for (const [name, value] of columns)
        if (value !== undefined)
          await sql.run(
            `UPDATE bucket_syncs SET ${name} = ? WHERE sandbox = ? AND path = ?`,
            value,
            sandbox,
            path,
          );
    },
  };
}
