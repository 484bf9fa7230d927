/**
 * Bounds what a project has recorded as text of its own: environments, labels, policies, and how templates
 * are run. Lists, and a server that starts, read all of it at once.
 */
import { CayError } from '@cay/sdk/protocol';
import type { Sql } from '../sql/sql.ts';

/** Shorter ones are bounded by the number of rows. */
const SHORT = 4096;
const MOST_SPECS = 128 * 1024 * 1024;
const MOST_CONFIGS = 32 * 1024 * 1024;

/** Columns of sandboxes and snapshots that callers fill, with as much as a request may have. */
const TEXTS = { spec: 'spec', labels: 'labels', network: 'network', templateNetwork: 'template_network' };
const SUM = Object.values(TEXTS)
  .map((name) => `coalesce(octet_length(${name}), 0)`)
  .join(' + ');

/**
 * Throws `resource_exhausted` if the project has no room for these columns of a sandbox or a snapshot, beside
 * those of all others. `stored` gives a value as it is recorded.
 */
export async function requireTextRoom(
  sql: Sql,
  { project, id }: { project: string; id: string },
  changes: Readonly<Record<string, unknown>>,
  stored: (key: string, value: unknown) => unknown,
): Promise<void> {
  const keys = Object.keys(TEXTS).filter((key) => changes[key] != null);
  const length = keys.reduce((sum, key) => sum + String(stored(key, changes[key])).length, 0);
  if (length <= SHORT) return;
  const row = await sql.get<{ bytes: number | null }>(
    `SELECT coalesce((SELECT sum(${SUM}) FROM sandboxes WHERE project = ? AND id <> ?), 0)
          + coalesce((SELECT sum(${SUM}) FROM snapshots WHERE project = ? AND id <> ?), 0) AS bytes`,
    ...[project, id, project, id],
  );
  if (Number(row?.bytes ?? 0) + length <= MOST_SPECS) return;
  throw new CayError(
    'resource_exhausted',
    `The environments, labels and network policies of all sandboxes and snapshots of the project take more than ${MOST_SPECS} bytes`,
    { hint: 'remove some, or put what is long into files' },
  );
}

/** The same for what a template says about how it is run, in place of what one of that name said. */
export async function requireConfigRoom(
  sql: Sql,
  { project, name }: { project: string; name: string },
  config: string,
): Promise<void> {
  if (config.length <= SHORT) return;
  const row = await sql.get<{ bytes: number | null }>(
    'SELECT sum(octet_length(config)) AS bytes FROM templates WHERE project = ? AND name <> ?',
    project,
    name,
  );
  if (Number(row?.bytes ?? 0) + config.length <= MOST_CONFIGS) return;
  throw new CayError(
    'resource_exhausted',
    `The configurations of all templates of the project take more than ${MOST_CONFIGS} bytes`,
    { hint: 'remove some, or make environment and labels of this one shorter' },
  );
}
