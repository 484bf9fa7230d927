import { CayError, type CreateKeySchema, type CreatedKey, type Key } from '@cay/sdk/protocol';
import type { z } from 'zod';
import { repeatableSecret, type KeyRecords } from '../../records/keys.ts';
import type { ProjectRecords } from '../../records/projects.ts';
import type { EventLog } from '../events/event-log.ts';
import type { Idempotency } from './idempotency.ts';
import { requireAdmin, type Principal } from './principal.ts';
import type { TokenEpochs } from './token-epochs.ts';

export type CreateKey = z.output<typeof CreateKeySchema>;

export interface KeyVerbs {
  /** The principal of an API key, by the key's secret. Undefined if no key has that secret. */
  authenticate(secret: string): Principal | undefined;
  /** Oldest first, without secrets. An admin sees the keys of all projects. */
  list(principal: Principal): Key[];
  /**
   * Creates an API key. The secret is not stored: a call that is repeated with the same idempotency key
   * derives it again. Needs an admin. Rejects `not_found` for an unknown project.
   */
  create(
    principal: Principal,
    request: CreateKey,
    options?: { idempotencyKey?: string | undefined },
  ): { value: CreatedKey; repeated: boolean };
  /**
   * Revokes a key; with `tokens` also all tokens and signed addresses of its project. A key that does not
   * exist is revoked already. Needs an admin. Rejects `failed_precondition` for the last admin key.
   */
  revoke(principal: Principal, id: string, options?: { tokens?: boolean | undefined }): void;
}

export interface KeyVerbParts {
  keys: KeyRecords;
  projects: Pick<ProjectRecords, 'get' | 'byName'>;
  epochs: Pick<TokenEpochs, 'revoke'>;
  events: Pick<EventLog, 'append'>;
  idempotency: Idempotency;
  /** Secrets of keys that are created with an idempotency key are derived from it. */
  secret: Uint8Array;
}

export function keyVerbs({ keys, projects, epochs, events, idempotency, secret }: KeyVerbParts): KeyVerbs {
  return {
    authenticate(given) {
      const key = keys.find(given);
      return key && { project: key.project, key: key.id, role: key.role };
    },
    list: (principal) => keys.list(principal.role === 'admin' ? undefined : principal.project),
    create(principal, { name, role, project: wanted = principal.project }, { idempotencyKey } = {}) {
      requireAdmin(principal);
      const project = projects.get(wanted) ?? projects.byName(wanted);
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
          make() {
            const created = keys.create({ name, project: project.id, role, secretOf });
            const data = { id: created.key.id, name, role };
            events.append({ type: 'key.created', project: project.id, key: principal.key, data });
            return { id: created.key.id, value: created };
          },
          again(id) {
            const key = keys.get(id);
            return key && { key, secret: secretOf!(id) };
          },
        },
      );
    },
    revoke(principal, id, { tokens = false } = {}) {
      requireAdmin(principal);
      const all = keys.list();
      const key = all.find((candidate) => candidate.id === id);
      if (!key) return;
      if (key.role === 'admin' && all.filter(({ role }) => role === 'admin').length === 1) {
        throw new CayError('failed_precondition', `Cannot revoke "${key.id}": it is the last admin key`, {
          hint: 'create another admin key first',
        });
      }
      keys.revoke(key.id);
      if (tokens) epochs.revoke(key.project);
      const event = { project: key.project, key: principal.key };
      events.append({ ...event, type: 'key.revoked', data: { id: key.id, name: key.name } });
      if (tokens) events.append({ ...event, type: 'project.tokens_revoked' });
    },
  };
}
