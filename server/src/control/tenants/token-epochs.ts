/**
 * How often the tokens of a project were revoked. The number is part of every token and signature that is
 * derived from a secret of the installation, so a higher number makes all earlier ones invalid. API keys are
 * not affected.
 */
import { CayError, type SandboxId } from '@cay/sdk/protocol';
import type { Database } from '../../records/database.ts';

export interface TokenEpochs {
  ofProject(project: string): number;
  /** The epoch of the sandbox's project; 0 if there is no such sandbox. */
  ofSandbox(id: SandboxId): number;
  /** Makes all tokens and signed URLs of a project invalid. */
  revoke(project: string): void;
}

export function tokenEpochs(database: Database): TokenEpochs {
  // Read with every request that has a token, and 0 for nearly all projects.
  const revoked = new Map(
    database
      .all<{ id: string; epoch: number }>(
        'SELECT id, token_epoch AS epoch FROM projects WHERE token_epoch > 0',
      )
      .map(({ id, epoch }) => [id, epoch]),
  );
  const ofProject = (project: string) => revoked.get(project) ?? 0;
  return {
    ofProject,
    ofSandbox(id) {
      if (revoked.size === 0) return 0;
      const row = database.get<{ project: string }>('SELECT project FROM sandboxes WHERE id = ?', id);
      return row ? ofProject(row.project) : 0;
    },
    revoke(project) {
      const epoch = ofProject(project) + 1;
      if (database.run('UPDATE projects SET token_epoch = ? WHERE id = ?', epoch, project) === 0) {
        throw new CayError('not_found', `Project "${project}" does not exist`);
      }
      database.afterCommit(() => revoked.set(project, epoch));
    },
  };
}

/** The text to sign in an epoch. In the first it is the same as before there were epochs. */
export function inEpoch(text: string, epoch: number): string {
  return epoch === 0 ? text : `${text}:epoch ${epoch}`;
}
