import { CayError, type CreateKeySchema, type CreatedKey, type Key } from '@cay/sdk/protocol';
import type { z } from 'zod';
import type { Records } from '../../records/records.ts';
import { repeatableSecret } from '../../records/tables/keys.ts';
import type { Idempotency } from './idempotency.ts';
import { requireAdmin, type Principal } from './principal.ts';
import type { Projects } from './projects.ts';

export type CreateKey = z.output<typeof CreateKeySchema>;

export interface KeyVerbs {
  /** The principal of an API key, by the key's secret. Undefined if no key has that secret. */
  authenticate(secret: string): Promise<Principal | undefined>;
  /** Oldest first, without secrets. An admin sees the keys of all projects. */
  list(principal: Principal): Promise<Key[]>;
  /**
   * Creates an API key. The secret is not stored: a call that is repeated with the same idempotency key
   * derives it again. Needs an admin. Rejects `not_found` for an unknown project.
   */
  create(
    principal: Principal,
    request: CreateKey,
    options?: { idempotencyKey?: string | undefined },
  ): Promise<{ value: CreatedKey; repeated: boolean }>;
  /**
   * Revokes a key; with `tokens` also all tokens and signed addresses of its project. A key that does not
   * exist is revoked already. Needs an admin. Rejects `failed_precondition` for the last admin key.
   */
  revoke(principal: Principal, id: string, options?: { tokens?: boolean | undefined }): Promise<void>;
}

export interface KeyVerbParts {
  records: Records;
  projects: Pick<Projects, 'find'>;
  idempotency: Idempotency;
  /** Secrets of keys that are created with an idempotency key are derived from it. */
  secret: Uint8Array;
}

export function keyVerbs({ records, projects, idempotency, secret }: KeyVerbParts): KeyVerbs {
  return {
    async authenticate(given) {
      const key = await records.keys.find(given);
      return key && { project: key.project, key: key.id, role: key.role };
    },
    list: (principal) => records.keys.list(principal.role === 'admin' ? undefined : principal.project),
    async create(principal, { name, role, project: wanted = principal.project }, { idempotencyKey } = {}) {
      requireAdmin(principal);
      const project = await projects.find(records, wanted);
      if (!project) throw new CayError('not_found', `Project "${wanted}" does not exist`);
      const secretOf =
        idempotencyKey === undefined
          ? undefined
          : (id: string) => repeatableSecret(secret, id, idempotencyKey);
      return idempotency.once<CreatedKey>(
        {
          project: principal.project,
          key: idempotencyKey,
          request: { createKey: { name, role, project: project.id } },
        },
        {
          async make(tx) {
            // It may have been removed since it was looked for.
            if (!(await tx.projects.get(project.id)))
              throw new CayError('not_found', `Project "${wanted}" does not exist`);
            const created = await tx.keys.create({ name, project: project.id, role, secretOf });
            const data = { id: created.key.id, name, role };
            await tx.events.append({ type: 'key.created', project: project.id, key: principal.key, data });
            return { id: created.key.id, value: created };
          },
          async again(tx, id) {
            const key = await tx.keys.get(id);
            return key && { key, secret: secretOf!(id) };
          },
        },
      );
    },
    async revoke(principal, id, { tokens = false } = {}) {
      requireAdmin(principal);
      await records.transaction(async (tx) => {
        const all = await tx.keys.list();
        const key = all.find((candidate) => candidate.id === id);
        if (!key) return;
        if (key.role === 'admin' && all.filter(({ role }) => role === 'admin').length === 1) {
          throw new CayError('failed_precondition', `Cannot revoke "${key.id}": it is the last admin key`, {
            hint: 'create another admin key first',
          });
        }
        await tx.keys.revoke(key.id);
        if (tokens) await tx.tokenEpochs.revoke(key.project);
        const event = { project: key.project, key: principal.key };
        await tx.events.append({ ...event, type: 'key.revoked', data: { id: key.id, name: key.name } });
        if (tokens) await tx.events.append({ ...event, type: 'project.tokens_revoked' });
      });
    },
  };
}
