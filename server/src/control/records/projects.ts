import { CayError, QuotaSchema, newId, type Project, type Quota } from '@cay/sdk/protocol';
import type { Database } from './database.ts';

interface StoredProject {
  id: string;
  name: string;
  quota: string;
  created_at: number;
}

export interface ProjectRecords {
  create(name: string, quota?: Quota): Project;
  get(id: string): Project | undefined;
  byName(name: string): Project | undefined;
  list(): Project[];
  setQuota(id: string, quota: Quota): Project;
}

export function projectRecords(database: Database, now: () => number = Date.now): ProjectRecords {
  const records: ProjectRecords = {
    create(name, quota = QuotaSchema.parse({})) {
      if (records.byName(name)) throw new CayError('already_exists', `A project named "${name}" exists already`);
      const project: Project = { id: newId('prj'), name, quota, createdAtMs: now() };
      database.run(
        'INSERT INTO projects (id, name, quota, created_at) VALUES (?, ?, ?, ?)',
        project.id,
        name,
        JSON.stringify(quota),
        project.createdAtMs,
      );
      return project;
    },
    get: (id) => parse(database.get<StoredProject>('SELECT * FROM projects WHERE id = ?', id)),
    byName: (name) => parse(database.get<StoredProject>('SELECT * FROM projects WHERE name = ?', name)),
    list: () => database.all<StoredProject>('SELECT * FROM projects ORDER BY created_at').map((row) => parse(row)!),
    setQuota(id, quota) {
      if (database.run('UPDATE projects SET quota = ? WHERE id = ?', JSON.stringify(quota), id) === 0) {
        throw new CayError('not_found', `Project "${id}" does not exist`);
      }
      return records.get(id)!;
    },
  };
  return records;
}

function parse(row: StoredProject | undefined): Project | undefined {
  return row && { id: row.id, name: row.name, quota: JSON.parse(row.quota) as Quota, createdAtMs: row.created_at };
}
