import type { Webhook } from '@cay/sdk/protocol';
import type { Database } from '../../../records/database.ts';

interface StoredWebhook {
  id: string;
  project: string;
  url: string;
  types: string;
  cursor: number;
  attempts: number;
  failing_since: number | null;
  last_error: string | null;
  disabled_at: number | null;
  created_at: number;
}

export type Progress = Partial<
  Pick<Webhook, 'deliveredTo' | 'attempts' | 'failingSinceMs' | 'lastError' | 'disabledAtMs'>
>;

export interface WebhookRecords {
  insert(webhook: Webhook): void;
  get(id: string): Webhook | undefined;
  /** Oldest first. */
  list(project?: string): Webhook[];
  /** A deleted webhook stays deleted. */
  update(id: string, progress: Progress): void;
  delete(id: string): void;
}

const COLUMNS = {
  deliveredTo: 'cursor',
  attempts: 'attempts',
  failingSinceMs: 'failing_since',
  lastError: 'last_error',
  disabledAtMs: 'disabled_at',
} as const;

export function webhookRecords(database: Database): WebhookRecords {
  return {
    insert: ({ id, project, url, types, deliveredTo, attempts, createdAtMs }) =>
      void database.run(
        'INSERT INTO webhooks (id, project, url, types, cursor, attempts, created_at) VALUES (?, ?, ?, ?, ?, ?, ?)',
        id,
        project,
        url,
        JSON.stringify(types),
        deliveredTo,
        attempts,
        createdAtMs,
      ),
    get: (id) => parse(database.get<StoredWebhook>('SELECT * FROM webhooks WHERE id = ?', id)),
    list: (project) =>
      database
        .all<StoredWebhook>(
          'SELECT * FROM webhooks WHERE ?1 IS NULL OR project = ?1 ORDER BY created_at, rowid',
          project ?? null,
        )
        .map((row) => parse(row)!),
    update(id, progress) {
      const entries = Object.entries(progress).filter(([, value]) => value !== undefined) as [
        keyof Progress,
        string | number | null,
      ][];
      if (entries.length === 0) return;
      const columns = entries.map(([name]) => `${COLUMNS[name]} = ?`).join(', ');
      database.run(`UPDATE webhooks SET ${columns} WHERE id = ?`, ...entries.map(([, value]) => value), id);
    },
    delete: (id) => void database.run('DELETE FROM webhooks WHERE id = ?', id),
  };
}

function parse(row: StoredWebhook | undefined): Webhook | undefined {
  if (!row) return undefined;
  return {
    id: row.id,
    project: row.project,
    url: row.url,
    types: JSON.parse(row.types) as string[],
    createdAtMs: row.created_at,
    deliveredTo: row.cursor,
    attempts: row.attempts,
    failingSinceMs: row.failing_since,
    lastError: row.last_error,
    disabledAtMs: row.disabled_at,
  };
}
