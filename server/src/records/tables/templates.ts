import {
  CayError,
  TemplateConfigSchema,
  type NetworkPolicy,
  type SnapshotId,
  type TemplateConfig,
} from '@cay/sdk/protocol';
import { sealedNetworks } from '../sealing/sealed-network.ts';
import { requireConfigRoom } from './text-room.ts';
import type { TableContext } from './table-context.ts';

/** A project's own template: a name for one of its snapshots. */
export interface TemplateRow {
  project: string;
  name: string;
  snapshot: SnapshotId;
  createdAtMs: number;
  /** What sandboxes made from it reach, and reach at most. Null is no policy. */
  network: NetworkPolicy | null;
  /** How it wants to be run, if its build said so. Sealed: its environment may have credentials. */
  config?: TemplateConfig | undefined;
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

const SELECT = 'SELECT project, name, snapshot, created_at AS "createdAtMs", network, config FROM templates';

type StoredTemplate = Omit<TemplateRow, 'network' | 'config'> & {
  network: string | null;
  config: string | null;
};

export function templateTable({ sql, box }: TableContext): TemplateRecords {
  const networks = sealedNetworks(box);
  const context = ({ project, name }: Pick<TemplateRow, 'project' | 'name'>) =>
    `templates/${project}/${name}`;
  const parse = ({ config, ...row }: StoredTemplate): TemplateRow => ({
    ...row,
    network: networks.parsed(context(row), row.network),
    ...(config !== null && {
      config: TemplateConfigSchema.parse(JSON.parse(box.open(config, `${context(row)}/config`).toString())),
    }),
  });
  const many = async (rest: string, ...values: string[]) =>
    (await sql.all<StoredTemplate>(`${SELECT} ${rest}`, ...values)).map(parse);
  return {
    async save(row, { replace }) {
      const { project, name, snapshot, createdAtMs, config } = row;
      const conflict = replace
        ? '(project, name) DO UPDATE SET snapshot = excluded.snapshot, created_at = excluded.created_at, network = excluded.network, config = excluded.config'
        : 'DO NOTHING';
      const stored = config === undefined ? null : box.seal(JSON.stringify(config), `${context(row)}/config`);
      if (stored !== null) await requireConfigRoom(sql, row, stored);
      const saved = await sql.run(
        `INSERT INTO templates (project, name, snapshot, created_at, network, config) VALUES (?, ?, ?, ?, ?, ?) ON CONFLICT ${conflict}`,
        project,
        name,
        snapshot,
        createdAtMs,
        networks.stored(context(row), row.network),
        stored,
      );
      if (saved === 0)
        throw new CayError('already_exists', `A template named "${name}" exists already`, {
          hint: 'choose another name, or pass replace',
        });
    },
    get: async (project, name) => (await many('WHERE project = ? AND name = ?', project, name))[0],
    list: (project) => many('WHERE project = ? ORDER BY name', project),
    count: async (project) =>
      (await sql.get<{ count: number }>(
        'SELECT count(*) AS count FROM templates WHERE project = ?',
        project,
      ))!.count,
    of: (snapshot) => many('WHERE snapshot = ?', snapshot),
    delete: async (project, name) =>
      (await sql.run('DELETE FROM templates WHERE project = ? AND name = ?', project, name)) > 0,
  };
}
