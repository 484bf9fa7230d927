import { CreateVolumeSchema, ImportVolumeSchema, VolumePageSchema, VolumeSchema } from '@cay/sdk/protocol';
import { z } from 'zod';
import type { Control } from '../../control/control.ts';
import { bodyOf } from '../http/request-body.ts';
import { route, type Route } from '../http/route.ts';
import { bytesAnswer } from '../http/stream-answer.ts';

const tag = 'volumes';
const ARCHIVE = 'application/x-tar';
const VolumeParams = z.object({ volume: z.string().min(1).max(80).describe("The volume's id or its name") });
const one = { description: 'The volume', schema: VolumeSchema };

export function volumeRoutes({ volumes }: Pick<Control, 'volumes'>): Route[] {
  return [
    route({
      method: 'post',
      path: '/v1/volumes',
      name: 'createVolume',
      summary: 'Create a volume, clone one, or take a snapshot of one',
      description:
        'Without `from` it is empty. With `from` it begins with what that volume has now; with `readOnly` too, it is a snapshot, which never changes.',
      tag,
      body: CreateVolumeSchema,
      answers: { 201: one },
      handle: async ({ json, principal, body }) => json(await volumes.create(principal, body), 201),
    }),
    route({
      method: 'get',
      path: '/v1/volumes',
      name: 'listVolumes',
      summary: 'List the volumes of the project, by name',
      tag,
      answers: { 200: { description: 'All volumes', schema: VolumePageSchema } },
      handle: async ({ json, principal }) => json({ volumes: await volumes.list(principal) }),
    }),
    route({
      method: 'post',
      path: '/v1/volumes/import',
      name: 'importVolume',
      summary: 'Create a volume of a tar archive',
      description: 'Completely or not at all. The archive is not compressed.',
      budget: 'helper',
      tag,
      query: ImportVolumeSchema,
      rawBody: ARCHIVE,
      answers: { 201: one },
      handle: async ({ json, request, principal, query, signal }) =>
        json(await volumes.import(principal, bodyOf(request), query, { signal }), 201),
    }),
    route({
      method: 'get',
      path: '/v1/volumes/{volume}',
      name: 'getVolume',
      summary: 'Get a volume, with what it takes and who has it mounted',
      tag,
      params: VolumeParams,
      answers: { 200: one },
      handle: async ({ json, principal, params }) => json(await volumes.get(principal, params.volume)),
    }),
    route({
      method: 'delete',
      path: '/v1/volumes/{volume}',
      name: 'removeVolume',
      summary: 'Remove a volume with all that it has',
      description: 'Refused while a sandbox has it mounted, whether that runs or not.',
      tag,
      params: VolumeParams,
      answers: { 204: { description: 'It is gone' } },
      handle: async ({ empty, principal, params }) => empty(await volumes.remove(principal, params.volume)),
    }),
    route({
      method: 'get',
      path: '/v1/volumes/{volume}/archive',
      name: 'exportVolume',
      summary: 'Get all that a volume has as a tar archive',
      budget: 'helper',
      tag,
      params: VolumeParams,
      answers: { 200: { description: 'The archive', media: [ARCHIVE] } },
      async handle({ context, principal, params, signal }) {
        const data = await volumes.export(principal, params.volume, { signal });
        return bytesAnswer(context, data, { headers: { 'Content-Type': ARCHIVE } });
      },
    }),
  ];
}
