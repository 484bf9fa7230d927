import { CayError } from '@cay/sdk/protocol';
import type { TableContext } from './table-context.ts';

/**
 * How often the tokens of a project were revoked. The number is part of every token and signature derived
 * from a secret of the installation, so that those issued before it grew are refused. API keys have no epoch.
 *
 * Asked with every request that has a token: it is one read, so that a revocation by another server counts at
 * once.
 */
export interface TokenEpochRecords {
  ofProject(project: string): Promise<number>;
  /** The epoch of the sandbox's project; 0 if the sandbox does not exist. */
  ofSandbox(id: string): Promise<number>;
  /** The epochs of all projects whose tokens were revoked. */
  revoked(): Promise<ReadonlyMap<string, number>>;
  /** Revokes all tokens and signed addresses of a project. Rejects `not_found` if it does not exist. */
  revoke(project: string): Promise<void>;
}

export function tokenEpochTable({ sql }: TableContext): TokenEpochRecords {
  const epoch = async (text: string, id: string) => (await sql.get<{ epoch: number }>(text, id))?.epoch ?? 0;
  return {
    ofProject: (project) => epoch('SELECT token_epoch AS epoch FROM projects WHERE id = ?', project),
    ofSandbox: (id) =>
      epoch(
        `SELECT token_epoch AS epoch FROM sandboxes JOIN projects ON projects.id = sandboxes.project
         WHERE sandboxes.id = ?`,
        id,
      ),
    async revoked() {
      const rows = await sql.all<{ id: string; epoch: number }>(
        'SELECT id, token_epoch AS epoch FROM projects WHERE token_epoch > 0',
      );
      return new Map(rows.map(({ id, epoch }) => [id, epoch]));
    },
    async revoke(project) {
      const changed = await sql.run(
        'UPDATE projects SET token_epoch = token_epoch + 1 WHERE id = ?',
        project,
      );
      if (changed === 0) throw new CayError('not_found', `Project "${project}" does not exist`);
    },
  };
}
