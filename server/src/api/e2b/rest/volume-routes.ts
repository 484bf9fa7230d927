/**
 * E2B's calls for volumes: create, list, get and remove. Its calls for the content of a volume are refused: a
 * sandbox that mounts the volume reads and writes it.
 */
import { createHmac } from 'node:crypto';
import { CayError, CreateVolumeSchema, type Volume } from '@cay/sdk/protocol';
import { z } from 'zod';
import { route, type Route } from '../../http/route.ts';
import type { E2bRouteOptions } from './starting-routes.ts';

const tag = 'e2b';
const Params = z.object({ volume: z.string().max(80) });

export function volumeRoutes({ control }: Pick<E2bRouteOptions, 'control'>): Route[] {
  /** Clients send it to the calls for content, and keep it as it is. */
  const tokenOf = ({ id }: Volume) =>
    createHmac('sha256', control.tokens.secret('e2b')).update(`volume ${id}`).digest('base64url');
  const show = (volume: Volume) => ({
    volumeID: volume.id,
    name: volume.name,
    token: tokenOf(volume),
  });
  return [
    route({
      method: 'post',
      path: '/volumes',
      name: 'e2bCreateVolume',
      summary: 'Create a volume',
      tag,
      body: z.looseObject({ name: z.string().max(128) }),
      answers: { 201: { description: 'The volume' } },
      async handle({ json, principal, body }) {
        const request = CreateVolumeSchema.safeParse({ name: body.name });
        if (!request.success)
          throw new CayError('invalid_argument', `"name" ${request.error.issues[0]?.message}`);
        return json(show(await control.volumes.create(principal, request.data)), 201);
      },
    }),
    route({
      method: 'get',
      path: '/volumes',
      name: 'e2bListVolumes',
      summary: 'List volumes',
      tag,
      answers: { 200: { description: 'All volumes' } },
      handle: async ({ json, principal }) =>
        json((await control.volumes.list(principal)).map(({ id, name }) => ({ volumeID: id, name }))),
    }),
    route({
      method: 'get',
      path: '/volumes/{volume}',
      name: 'e2bGetVolume',
      summary: 'Get a volume',
      tag,
      params: Params,
      answers: { 200: { description: 'The volume' } },
      handle: async ({ json, principal, params }) =>
        json(show(await control.volumes.get(principal, params.volume))),
    }),
    route({
      method: 'delete',
      path: '/volumes/{volume}',
      name: 'e2bDeleteVolume',
      summary: 'Remove a volume',
      tag,
      params: Params,
      answers: { 204: { description: 'Done' } },
      async handle({ empty, principal, params }) {
        // Clients tell one that is gone from one that was removed.
        await control.volumes.get(principal, params.volume);
        await control.volumes.remove(principal, params.volume);
        return empty();
      },
    }),
  ];
}
