import {
  SecretListSchema,
  SecretNameSchema,
  SecretSchema,
  SetSecretSchema,
  ShownSecretSchema,
} from '@cay/sdk/protocol';
import { z } from 'zod';
import type { Control } from '../../control/control.ts';
import { route, type Route } from '../http/route.ts';
import { Flag } from './parameters.ts';

const tag = 'secrets';
const SecretParams = z.object({ name: SecretNameSchema });

export function secretRoutes({ secrets }: Pick<Control, 'secrets'>): Route[] {
  return [
    route({
      method: 'put',
      path: '/v1/secrets/{name}',
      name: 'setSecret',
      summary: 'Store a secret, or give it another value',
      description:
        'Rules of network policies put it on requests, outside of sandboxes. The value is sealed and answered by no call. ' +
        'Another value is used by the next request; of the one before nothing is kept.',
      tag,
      params: SecretParams,
      body: SetSecretSchema,
      answers: {
        200: { description: 'It has another value', schema: SecretSchema },
        201: { description: 'It is stored', schema: SecretSchema },
      },
      async handle({ json, principal, params, body }) {
        const { secret, created } = await secrets.set(principal, params.name, body.value);
        return json(secret, created ? 201 : 200);
      },
    }),
    route({
      method: 'get',
      path: '/v1/secrets',
      name: 'listSecrets',
      summary: "List the project's secrets",
      tag,
      answers: { 200: { description: 'Secrets by name, without their values', schema: SecretListSchema } },
      handle: async ({ json, principal }) => json({ secrets: await secrets.list(principal) }),
    }),
    route({
      method: 'get',
      path: '/v1/secrets/{name}',
      name: 'getSecret',
      summary: 'Get a secret without its value, and who uses it',
      tag,
      params: SecretParams,
      answers: { 200: { description: 'The secret', schema: ShownSecretSchema } },
      handle: async ({ json, principal, params }) => json(await secrets.get(principal, params.name)),
    }),
    route({
      method: 'delete',
      path: '/v1/secrets/{name}',
      name: 'removeSecret',
      summary: 'Remove a secret',
      description:
        'One that a network policy names is kept, unless `force` is set: then requests that it would be put on are refused.',
      tag,
      params: SecretParams,
      query: z.object({ force: Flag.optional() }).strict(),
      answers: { 204: { description: 'It is gone' } },
      handle: async ({ empty, principal, params, query }) =>
        empty(await secrets.remove(principal, params.name, { force: query.force ?? false })),
    }),
  ];
}
