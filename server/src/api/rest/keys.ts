import { CayError, CreateKeySchema, CreatedKeySchema, KeyListSchema } from '@cay/sdk/protocol';
import { z } from 'zod';
import type { Idempotency } from '../../control/tenants/idempotency.ts';
import type { EventLog } from '../../control/events/event-log.ts';
import { repeatableSecret, type KeyRecords, type NewKey } from '../../records/keys.ts';
import type { ProjectRecords } from '../../records/projects.ts';
import type { TokenEpochs } from '../../control/tenants/token-epochs.ts';
import { Flag } from './parameters.ts';
import { route, type Route } from '../http/route.ts';
import { idempotencyKeyOf } from '../../control/commands/start-command.ts';

const tag = 'keys';

export interface KeyRouteOptions {
  keys: KeyRecords;
  projects: ProjectRecords;
  epochs: TokenEpochs;
  events: EventLog;
  idempotency: Idempotency;
  /** What the secrets of keys made with an `Idempotency-Key` are derived from. */
  keySecret: Uint8Array;
}

export function keyRoutes({
  keys,
  projects,
  epochs,
  events,
  idempotency,
  keySecret,
}: KeyRouteOptions): Route[] {
  return [
    route({
      method: 'get',
      path: '/v1/keys',
      name: 'listKeys',
      summary: "List API keys: an admin sees all, others their project's",
      tag,
      answers: { 200: { description: 'Keys, oldest first, without their secrets', schema: KeyListSchema } },
      handle: ({ json, principal }) =>
        json({ keys: keys.list(principal.role === 'admin' ? undefined : principal.project) }),
    }),
    route({
      method: 'post',
      path: '/v1/keys',
      name: 'createKey',
      summary: 'Create an API key',
      description:
        'The secret is stored nowhere. A repeated `Idempotency-Key` answers with the key that the first call made, secret included.',
      tag,
      access: 'admin',
      headers: { 'Idempotency-Key': 'Makes the call repeatable' },
      body: CreateKeySchema,
      answers: {
        200: { description: 'It was created by an earlier call', schema: CreatedKeySchema },
        201: { description: 'The key, and its secret this once', schema: CreatedKeySchema },
      },
      handle({ json, request, principal, body }) {
        const wanted = body.project ?? principal.project;
        const project = projects.get(wanted) ?? projects.byName(wanted);
        if (!project) throw new CayError('not_found', `Project "${wanted}" does not exist`);
        const idempotencyKey = idempotencyKeyOf(request.headers);
        const secretOf =
          idempotencyKey === undefined
            ? undefined
            : (id: string) => repeatableSecret(keySecret, id, idempotencyKey);
        const { value, repeated } = idempotency.once<NewKey>(
          {
            project: principal.project,
            key: idempotencyKey,
            request: { createKey: { ...body, project: project.id } },
          },
          {
            make() {
              const created = keys.create({
                name: body.name,
                project: project.id,
                role: body.role,
                secretOf,
              });
              const data = { id: created.key.id, name: body.name, role: body.role };
              events.append({ type: 'key.created', project: project.id, key: principal.key, data });
              return { id: created.key.id, value: created };
            },
            again(id) {
              const key = keys.get(id);
              return key && { key, secret: secretOf!(id) };
            },
          },
        );
        return json(value, repeated ? 200 : 201);
      },
    }),
    route({
      method: 'delete',
      path: '/v1/keys/{key}',
      name: 'revokeKey',
      summary: 'Revoke an API key',
      description:
        'A key that does not exist is revoked already. The last admin key stays. What was got with the key, such as access tokens of sandboxes, ' +
        'goes on being valid; with `tokens` all tokens and signed addresses of its project are revoked, too.',
      tag,
      access: 'admin',
      params: z.object({ key: z.string().min(1).max(80) }),
      query: z.object({ tokens: Flag.optional() }).strict(),
      answers: { 204: { description: 'It is of no use any more' } },
      handle({ context, principal, params, query }) {
        const all = keys.list();
        const key = all.find((candidate) => candidate.id === params.key);
        if (!key) return context.body(null, 204);
        if (key.role === 'admin' && all.filter(({ role }) => role === 'admin').length === 1) {
          throw new CayError('failed_precondition', `Cannot revoke "${key.id}": it is the last admin key`, {
            hint: 'create another admin key first',
          });
        }
        keys.revoke(key.id);
        if (query.tokens) epochs.revoke(key.project);
        events.append({
          type: 'key.revoked',
          project: key.project,
          key: principal.key,
          data: { id: key.id, name: key.name },
        });
        if (query.tokens)
          events.append({ type: 'project.tokens_revoked', project: key.project, key: principal.key });
        return context.body(null, 204);
      },
    }),
  ];
}
