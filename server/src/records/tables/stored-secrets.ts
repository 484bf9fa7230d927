import { newId, type Secret } from '@cay/sdk/protocol';
import type { TableContext } from './table-context.ts';

/** A secret of a project, without its value. */
export interface StoredSecretRow extends Secret {
  id: string;
}

/** The value of a secret, opened. */
export interface OpenedSecret {
  id: string;
  name: string;
  version: number;
  value: string;
}

/** Secrets that projects store. The value of each is sealed for its row and version. */
export interface StoredSecretRecords {
  /** Makes it, or replaces its value, of which nothing is kept. */
  put(project: string, name: string, value: string): Promise<StoredSecretRow>;
  get(project: string, name: string): Promise<StoredSecretRow | undefined>;
  /** By name. */
  list(project: string): Promise<StoredSecretRow[]>;
  /** The values of those that exist. */
  open(project: string, names: readonly string[]): Promise<OpenedSecret[]>;
  usage(project: string): Promise<{ count: number; bytes: number }>;
  /** Resolves whether there was one. */
  delete(project: string, name: string): Promise<boolean>;
}

const COLUMNS = 'id, name, version, bytes, created_at AS "createdAtMs", updated_at AS "updatedAtMs"';

export function storedSecretTable({ sql, box, now }: TableContext): StoredSecretRecords {
  const context = (id: string, version: number) => `stored_secrets/${id}/${version}`;
  return {
    put: (project, name, value) =>
      sql.transaction(async (tx) => {
        const before = await tx.get<StoredSecretRow>(
          `SELECT ${COLUMNS} FROM stored_secrets WHERE project = ? AND name = ?${sql.dialect.lockRow}`,
          project,
          name,
        );
        const at = now();
        const row: StoredSecretRow = {
          id: before?.id ?? newId('sec'),
          name,
          version: (before?.version ?? 0) + 1,
          bytes: Buffer.byteLength(value),
          createdAtMs: before?.createdAtMs ?? at,
          updatedAtMs: at,
        };
        const sealed = box.seal(value, context(row.id, row.version));
        if (before)
          await tx.run(
            'UPDATE stored_secrets SET version = ?, value = ?, bytes = ?, updated_at = ? WHERE id = ?',
            row.version,
            sealed,
            row.bytes,
            at,
            row.id,
          );
        else
          await tx.run(
            'INSERT INTO stored_secrets (id, project, name, version, value, bytes, created_at, updated_at) VALUES (?, ?, ?, ?, ?, ?, ?, ?)',
            row.id,
            project,
            name,
            row.version,
            sealed,
            row.bytes,
            at,
            at,
          );
        return row;
      }),
    get: (project, name) =>
      sql.get<StoredSecretRow>(
        `SELECT ${COLUMNS} FROM stored_secrets WHERE project = ? AND name = ?`,
        project,
        name,
      ),
    list: (project) =>
      sql.all<StoredSecretRow>(
        `SELECT ${COLUMNS} FROM stored_secrets WHERE project = ? ORDER BY name`,
        project,
      ),
    async open(project, names) {
      if (names.length === 0) return [];
      const rows = await sql.all<OpenedSecret>(
        `SELECT id, name, version, value FROM stored_secrets WHERE project = ? AND name IN (${names.map(() => '?').join(', ')})`,
        project,
        ...names,
      );
      return rows.map(({ id, name, version, value }) => ({
        id,
        name,
        version,
        value: box.open(value, context(id, version)).toString(),
      }));
    },
    usage: async (project) =>
      (await sql.get<{ count: number; bytes: number }>(
        'SELECT count(*) AS count, CAST(coalesce(sum(bytes), 0) AS BIGINT) AS bytes FROM stored_secrets WHERE project = ?',
        project,
      ))!,
    delete: async (project, name) =>
      (await sql.run('DELETE FROM stored_secrets WHERE project = ? AND name = ?', project, name)) > 0,
  };
}
