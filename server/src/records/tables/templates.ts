import { CayError, type SnapshotId } from '@cay/sdk/protocol';
import type { TableContext } from './table-context.ts';

/** A project's own template: a name for one of its snapshots. */
export interface TemplateRow {
  project: string;
  name: string;
  snapshot: SnapshotId;
  createdAtMs: number;
}

export interface TemplateRecords {
  /** Without `replace` rejects `already_exists` if the project has a template of this name. */
  save(row: TemplateRow, options: { replace: boolean }): Promise<void>;
  get(project: string, name: string): Promise<TemplateRow | undefined>;
  /** By name. */
  list(project: string): Promise<TemplateRow[]>;
  count(project: string): Promise<number>;
  /** Templates made from a snapshot. */
  of(snapshot: string): Promise<TemplateRow[]>;
  /** Resolves whether there was one. */
  delete(project: string, name: string): Promise<boolean>;
}

const SELECT = 'SELECT project, name, snapshot, created_at AS "createdAtMs" FROM templates';

export function templateTable({ sql }: TableContext): TemplateRecords {
  return {
    async save({ project, name, snapshot, createdAtMs }, { replace }) {
      const conflict = replace
        ? '(project, name) DO UPDATE SET snapshot = excluded.snapshot, created_at = excluded.created_at'
        : 'DO NOTHING';
      const saved = await sql.run(
        `INSERT INTO templates (project, name, snapshot, created_at) VALUES (?, ?, ?, ?) ON CONFLICT ${conflict}`,
        project,
        name,
        snapshot,
        createdAtMs,
      );
      if (saved === 0)
        throw new CayError('already_exists', `A template named "${name}" exists already`, {
          hint: 'choose another name, or pass replace',
        });
    },
    get: (project, name) => sql.get<TemplateRow>(`${SELECT} WHERE project = ? AND name = ?`, project, name),
    list: (project) => sql.all<TemplateRow>(`${SELECT} WHERE project = ? ORDER BY name`, project),
    count: async (project) =>
      (await sql.get<{ count: number }>(
        'SELECT count(*) AS count FROM templates WHERE project = ?',
        project,
      ))!.count,
    of: (snapshot) => sql.all<TemplateRow>(`${SELECT} WHERE snapshot = ?`, snapshot),
    delete: async (project, name) =>
      (await sql.run('DELETE FROM templates WHERE project = ? AND name = ?', project, name)) > 0,
  };
}
