import { CayError, type Secret } from '@cay/sdk/protocol';
import { inBackground } from '../../lib/in-background.ts';
import type { StoredSecretRow } from '../../records/tables/stored-secrets.ts';
import type { Tables } from '../../records/tables/tables.ts';
import type { Core } from '../core.ts';
import type { SecretVerbs } from './secret.ts';
import { secretsIn } from './secrets-in.ts';

const MAX_SHOWN = 100;

export interface OpenedSecretVerbs {
  readonly verbs: SecretVerbs;
  close(): Promise<void>;
}

export function openSecretVerbs({
  networks,
  onError,
  quota,
  records,
}: Pick<Core, 'networks' | 'onError' | 'quota' | 'records'>): OpenedSecretVerbs {
  quota.counts('secrets', 'secrets', async (project, on) => (await on.storedSecrets.usage(project)).count);
  quota.counts(
    'secretBytes',
    'secrets',
    async (project, on) => (await on.storedSecrets.usage(project)).bytes,
  );
  // Another server of the installation may have changed them.
  const unlisten = records.events.listen(({ type, project }) => {
    if (project !== null && type.startsWith('secret.'))
      inBackground(networks.refreshSecrets(project), onError);
  });

  /** The sandboxes and the project whose own policy names it. */
  async function usersOf(on: Tables, project: string, name: string): Promise<string[]> {
    const rows = await on.sandboxes.list({ project });
    const users = rows
      .filter(({ network, templateNetwork }) => secretsIn(network, templateNetwork).includes(name))
      .map(({ id }): string => id);
    const own = await on.projects.get(project);
    return own && secretsIn(own.network).includes(name) ? [project, ...users] : users;
  }

  const verbs: SecretVerbs = {
    async set(principal, name, value) {
      const { project, key } = principal;
      const row = await records.transaction(async (tx) => {
        const before = await tx.storedSecrets.get(project, name);
        if (!before) await quota.requireRoom(tx, project, 'secrets', 1);
        const more = Buffer.byteLength(value) - (before?.bytes ?? 0);
        if (more > 0) await quota.requireRoom(tx, project, 'secretBytes', more);
        const stored = await tx.storedSecrets.put(project, name, value);
        const data = { secret: name, version: stored.version };
        await tx.events.append({ type: 'secret.set', project, key, data });
        return stored;
      });
      await networks.refreshSecrets(project);
      return { secret: shown(row), created: row.version === 1 };
    },
    list: async ({ project }) => (await records.storedSecrets.list(project)).map(shown),
    async get({ project }, name) {
      const row = await records.storedSecrets.get(project, name);
      if (!row) throw new CayError('not_found', `Secret "${name}" does not exist`);
      return { ...shown(row), usedBy: (await usersOf(records, project, name)).slice(0, MAX_SHOWN) };
    },
    async remove({ project, key }, name, { force = false } = {}) {
      await records.transaction(async (tx) => {
        const users = await usersOf(tx, project, name);
        if (users.length > 0 && !force)
          throw new CayError(
            'failed_precondition',
            `Cannot remove secret "${name}": network policies use it (${users.slice(0, 5).join(', ')}${users.length > 5 ? ` and ${users.length - 5} more` : ''})`,
            {
              details: { usedBy: users.slice(0, MAX_SHOWN) },
              hint: 'change these policies first, or remove it by force: then requests that it would be put on are refused',
            },
          );
        if (!(await tx.storedSecrets.delete(project, name))) return;
        await tx.events.append({
          type: 'secret.removed',
          project,
          key,
          data: { secret: name, usedBy: users.length },
        });
      });
      await networks.refreshSecrets(project);
    },
  };
  return { verbs, close: async () => unlisten() };
}

function shown({ id: _id, ...secret }: StoredSecretRow): Secret {
  return secret;
}
