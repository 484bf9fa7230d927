import type { Webhook } from '@cay/sdk/protocol';
import type { TableContext } from './table-context.ts';

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

export type WebhookProgress = Partial<
  Pick<Webhook, 'deliveredTo' | 'attempts' | 'failingSinceMs' | 'lastError' | 'disabledAtMs'>
>;

export interface WebhookRecords {
  insert(webhook: Webhook): Promise<void>;
  get(id: string): Promise<Webhook | undefined>;
  /** Oldest first, of one project or of all. */
  list(project?: string): Promise<Webhook[]>;
  count(project: string): Promise<number>;
  /** Does nothing if the webhook does not exist. */
  update(id: string, progress: WebhookProgress): Promise<void>;
  delete(id: string): Promise<void>;
}

const COLUMNS = {
  deliveredTo: 'cursor',
  attempts: 'attempts',
  failingSinceMs: 'failing_since',
  lastError: 'last_error',
  disabledAtMs: 'disabled_at',
} as const;

export function webhookTable({ sql }: TableContext): WebhookRecords {
  return {
    async insert({ id, project, url, types, deliveredTo, attempts, createdAtMs }) {
      await sql.run(
        'INSERT INTO webhooks (id, project, url, types, cursor, attempts, created_at) VALUES (?, ?, ?, ?, ?, ?, ?)',
        id,
        project,
        url,
        JSON.stringify(types),
        deliveredTo,
        attempts,
        createdAtMs,
      );
    },
    async get(id) {
      const row = await sql.get<StoredWebhook>('SELECT * FROM webhooks WHERE id = ?', id);
      return row && parse(row);
    },
    async list(project) {
      const of = project === undefined ? '' : 'WHERE project = ?';
      const rows = await sql.all<StoredWebhook>(
        `SELECT * FROM webhooks ${of} ORDER BY created_at, ${sql.dialect.insertionOrder}`,
        ...(project === undefined ? [] : [project]),
      );
      return rows.map(parse);
    },
    count: async (project) =>
      (await sql.get<{ count: number }>('SELECT count(*) AS count FROM webhooks WHERE project = ?', project))!
        .count,
    async update(id, progress) {
      const entries = Object.entries(progress).filter(([, value]) => value !== undefined) as [
        keyof WebhookProgress,
        string | number | null,
      ][];
      if (entries.length === 0) return;
      await sql.run(
        `UPDATE webhooks SET ${entries.map(([name]) => `${COLUMNS[name]} = ?`).join(', ')} WHERE id = ?`,
        ...entries.map(([, value]) => value),
        id,
      );
    },
    async delete(id) {
      await sql.run('DELETE FROM webhooks WHERE id = ?', id);
    },
  };
}

function parse(row: StoredWebhook): Webhook {
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
