import { CreateKeySchema, CreatedKeySchema, KeyListSchema } from '@cay/sdk/protocol';
import { z } from 'zod';
import type { Control } from '../../control/control.ts';
import { Flag } from './parameters.ts';
import { route, type Route } from '../http/route.ts';
import { idempotencyKeyOf } from '../http/idempotency-key.ts';

const tag = 'keys';

export function keyRoutes({ keys }: Pick<Control, 'keys'>): Route[] {
  return [
    route({
      method: 'get',
      path: '/v1/keys',
      name: 'listKeys',
      summary: "List API keys: an admin sees all, others their project's",
      tag,
      answers: { 200: { description: 'Keys, oldest first, without their secrets', schema: KeyListSchema } },
      handle: async ({ json, principal }) => json({ keys: await keys.list(principal) }),
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
      async handle({ json, request, principal, body }) {
        const { value, repeated } = await keys.create(principal, body, {
          idempotencyKey: idempotencyKeyOf(request.headers),
        });
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
        'stays valid; with `tokens` all tokens and signed addresses of its project are revoked, too.',
      tag,
      access: 'admin',
      params: z.object({ key: z.string().min(1).max(80) }),
      query: z.object({ tokens: Flag.optional() }).strict(),
      answers: { 204: { description: 'It is revoked' } },
      handle: async ({ empty, principal, params, query }) =>
        empty(await keys.revoke(principal, params.key, query)),
    }),
  ];
}
