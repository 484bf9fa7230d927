import type { SqlValue } from '../sql/sql.ts';
import type { EventQuery } from './events.ts';

/** The condition on events of a sandbox or a project, and its values. True for all where neither is given. */
export function ofWhom({
  project,
  sandbox,
}: Pick<EventQuery, 'project' | 'sandbox'>): [string, ...SqlValue[]] {
  const conditions: string[] = [];
  const values: SqlValue[] = [];
  if (sandbox !== undefined) {
    conditions.push('sandbox = ?');
    values.push(sandbox);
  }
  if (project !== undefined) {
    conditions.push('project = ?');
    values.push(project);
  }
  return [conditions.join(' AND ') || '1 = 1', ...values];
}
