import { CayError, type SnapshotId } from '@cay/sdk/protocol';
import type { Database } from './database.ts';

/** A project's own template: a name for one of its snapshots. */
export interface TemplateRow {
  project: string;
  name: string;
  snapshot: SnapshotId;
  createdAtMs: number;
}

export interface TemplateRecords {
  save(row: TemplateRow, options: { replace: boolean }): void;
  get(project: string, name: string): TemplateRow | undefined;
  list(project: string): TemplateRow[];
  count(project: string): number;
  /** Those that are made of a snapshot. */
  of(snapshot: string): TemplateRow[];
  delete(project: string, name: string): boolean;
}

const SELECT = 'SELECT project, name, snapshot, created_at AS createdAtMs FROM templates';

export function templateRecords(database: Database): TemplateRecords {
  const records: TemplateRecords = {
    save: ({ project, name, snapshot, createdAtMs }, { replace }) =>
      database.transaction(() => {
        if (!replace && records.get(project, name)) {
          throw new CayError('already_exists', `A template named "${name}" exists already`, {
            hint: 'choose another name, or pass replace',
          });
        }
        database.run(
          'INSERT OR REPLACE INTO templates (project, name, snapshot, created_at) VALUES (?, ?, ?, ?)',
          project,
          name,
          snapshot,
          createdAtMs,
        );
      }),
    get: (project, name) =>
      database.get<TemplateRow>(`${SELECT} WHERE project = ? AND name = ?`, project, name),
    list: (project) => database.all<TemplateRow>(`${SELECT} WHERE project = ? ORDER BY name`, project),
    count: (project) =>
      database.get<{ count: number }>('SELECT count(*) AS count FROM templates WHERE project = ?', project)!
        .count,
    of: (snapshot) => database.all<TemplateRow>(`${SELECT} WHERE snapshot = ?`, snapshot),
    delete: (project, name) =>
      database.run('DELETE FROM templates WHERE project = ? AND name = ?', project, name) > 0,
  };
  return records;
}
