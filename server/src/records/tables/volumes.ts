import { CayError, type Mount, type SandboxId, type Volume, type VolumeId } from '@cay/sdk/protocol';
import type { Sql } from '../sql/sql.ts';
import type { TableContext } from './table-context.ts';

/**
 * `making`: it may be half made. `removing`: it may be half removed. Clients see only those that are `kept`.
 */
export type VolumeState = 'making' | 'kept' | 'removing';

export interface VolumeRow extends Pick<
  Volume,
  'id' | 'project' | 'name' | 'readOnly' | 'sizeBytes' | 'from' | 'labels' | 'createdAtMs'
> {
  /** Null where there is one platform. */
  platform: string | null;
  state: VolumeState;
  /** What it counts with: its size, or what a snapshot has. */
  countedBytes: number;
}

export type MountRow = Volume['mountedBy'][number] & { volume: VolumeId };

interface StoredVolume {
  id: VolumeId;
  project: string;
  name: string;
  platform: string | null;
  state: VolumeState;
  read_only: number;
  size_bytes: number | null;
  counted_bytes: number;
  origin: VolumeId | null;
  labels: string;
  created_at: number;
}

export interface VolumeRecords {
  /** Rejects `already_exists` if a volume of the project has the name. */
  insert(row: VolumeRow): Promise<void>;
  /** By id or name, in whatever state. */
  find(project: string, ref: string): Promise<VolumeRow | undefined>;
  get(id: string): Promise<VolumeRow | undefined>;
  /** By name; of one project, or of all. */
  list(project?: string): Promise<VolumeRow[]>;
  update(id: string, changes: Partial<Pick<VolumeRow, 'state' | 'countedBytes'>>): Promise<void>;
  delete(id: string): Promise<void>;
  /** How many a project has, and what they count with. */
  usage(project: string): Promise<{ count: number; bytes: number }>;
  /** Which sandboxes have it, or any of the project's. */
  mounts(of: { volume: string } | { project: string }): Promise<MountRow[]>;
}

export function volumeTable({ sql }: TableContext): VolumeRecords {
  const one = async (rest: string, ...values: string[]) => {
    const row = await sql.get<StoredVolume>(`SELECT * FROM volumes WHERE ${rest}`, ...values);
    return row && parse(row);
  };
  return {
    async insert(row) {
      const inserted = await sql.run(
        `INSERT INTO volumes (id, project, name, platform, state, read_only, size_bytes, counted_bytes, origin, labels, created_at)
         VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING`,
        ...[row.id, row.project, row.name, row.platform, row.state, row.readOnly ? 1 : 0],
        ...[row.sizeBytes, row.countedBytes, row.from, JSON.stringify(row.labels), row.createdAtMs],
      );
      if (inserted === 0)
        throw new CayError('already_exists', `A volume named "${row.name}" exists already`, {
          hint: 'choose another name',
        });
    },
    find: (project, ref) => one('project = ? AND (id = ? OR name = ?)', project, ref, ref),
    get: (id) => one('id = ?', id),
    async list(project) {
      const of = project === undefined ? '' : 'WHERE project = ?';
      const rows = await sql.all<StoredVolume>(
        `SELECT * FROM volumes ${of} ORDER BY name, id`,
        ...(project === undefined ? [] : [project]),
      );
      return rows.map(parse);
    },
    async update(id, { state, countedBytes }) {
      if (state !== undefined) await sql.run('UPDATE volumes SET state = ? WHERE id = ?', state, id);
      if (countedBytes !== undefined)
        await sql.run('UPDATE volumes SET counted_bytes = ? WHERE id = ?', countedBytes, id);
    },
    async delete(id) {
      await sql.run('DELETE FROM volumes WHERE id = ?', id);
    },
    usage: async (project) =>
      (await sql.get<{ count: number; bytes: number }>(
        `SELECT count(*) AS count, CAST(coalesce(sum(counted_bytes), 0) AS BIGINT) AS bytes
         FROM volumes WHERE project = ?`,
        project,
      ))!,
    async mounts(of) {
      const [column, value] = 'volume' in of ? ['m.volume', of.volume] : ['s.project', of.project];
      const rows = await sql.all<{
        volume: VolumeId;
        sandbox: SandboxId;
        name: string | null;
        path: string;
        read_only: number;
      }>(
        `SELECT m.volume, m.sandbox, s.name, m.path, m.read_only FROM volume_mounts m
         JOIN sandboxes s ON s.id = m.sandbox WHERE ${column} = ? ORDER BY m.sandbox, m.path`,
        value,
      );
      return rows.map(({ read_only: readOnly, ...row }) => ({ ...row, readOnly: readOnly === 1 }));
    },
  };
}

/**
 * Records which volumes a sandbox has. Rejects `not_found` for one that does not exist or is of another
 * project: a volume that is being removed is not mounted any more, and one that is mounted is not removed.
 */
export async function insertMounts(
  sql: Sql,
  { id, project }: { id: SandboxId; project: string },
  mounts: readonly Mount[],
): Promise<void> {
  for (const mount of mounts) {
    if (mount.type !== 'volume') continue;
    const inserted = await sql.run(
      `INSERT INTO volume_mounts (volume, sandbox, path, read_only)
       SELECT id, ?, ?, ? FROM volumes WHERE id = ? AND project = ? AND state = 'kept'${sql.dialect.lockRow}`,
      ...[id, mount.path, mount.readOnly ? 1 : 0, mount.volume, project],
    );
    if (inserted === 0)
      throw new CayError('not_found', `Volume "${mount.name ?? mount.volume}" does not exist`, {
        details: { what: 'volume' },
      });
  }
}

function parse(row: StoredVolume): VolumeRow {
  return {
    id: row.id,
    project: row.project,
    name: row.name,
    platform: row.platform,
    state: row.state,
    readOnly: row.read_only === 1,
    sizeBytes: row.size_bytes,
    countedBytes: row.counted_bytes,
    from: row.origin,
    labels: JSON.parse(row.labels) as Record<string, string>,
    createdAtMs: row.created_at,
  };
}
