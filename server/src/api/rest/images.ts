import {
  FindImageSchema,
  ImagePageSchema,
  ImageSchema,
  ImportImageSchema,
  PullImageSchema,
  PullLineSchema,
} from '@cay/sdk/protocol';
import type { Control } from '../../control/control.ts';
import { bodyOf } from '../http/request-body.ts';
import { route, type Route } from '../http/route.ts';
import { begun, eventsAnswer, STREAMS } from '../http/stream-answer.ts';

const tag = 'images';
const ARCHIVE = 'application/x-tar';
const progress = {
  200: { description: 'Progress, then the images', media: STREAMS, events: PullLineSchema },
};

export function imageRoutes({ images }: Pick<Control, 'images'>): Route[] {
  return [
    route({
      method: 'post',
      path: '/v1/images/pull',
      name: 'pullImage',
      summary: 'Pull an image from its registry',
      description:
        'Streams how far it is, and then the image. Calls for one image share the work. A caller that disconnects gives up, and what was fetched is kept for the next.',
      budget: 'stream',
      tag,
      body: PullImageSchema,
      answers: progress,
      handle: async ({ context, principal, body, signal }) =>
        eventsAnswer(context, await begun(images.pull(principal, body, { signal }))),
    }),
    route({
      method: 'post',
      path: '/v1/images/import',
      name: 'importImage',
      summary: 'Take in images from an archive',
      description:
        'The archive is one of `docker save`, of an OCI layout, or of a root filesystem, which needs a `name`. It may be compressed by gzip or zstd.',
      budget: 'helper',
      access: 'admin',
      tag,
      query: ImportImageSchema,
      rawBody: ARCHIVE,
      answers: progress,
      handle: ({ context, request, principal, query, signal }) =>
        eventsAnswer(context, images.import(principal, bodyOf(request), query, { signal })),
    }),
    route({
      method: 'get',
      path: '/v1/images',
      name: 'listImages',
      summary: 'List the images that are here',
      access: 'admin',
      tag,
      answers: { 200: { description: 'All images', schema: ImagePageSchema } },
      handle: async ({ json, principal }) => json({ images: await images.list(principal) }),
    }),
    route({
      method: 'get',
      path: '/v1/images/inspect',
      name: 'inspectImage',
      summary: 'Get an image by a name or its digest',
      access: 'admin',
      tag,
      query: FindImageSchema,
      answers: { 200: { description: 'The image', schema: ImageSchema } },
      handle: async ({ json, principal, query }) => json(await images.get(principal, query.image)),
    }),
    route({
      method: 'delete',
      path: '/v1/images',
      name: 'removeImage',
      summary: 'Remove a name of an image, and the image with its last name',
      description: 'Refused while a sandbox or a snapshot was made from it.',
      access: 'admin',
      tag,
      query: FindImageSchema,
      answers: { 204: { description: 'It is gone' } },
      handle: async ({ empty, principal, query }) => empty(await images.remove(principal, query.image)),
    }),
  ];
}
