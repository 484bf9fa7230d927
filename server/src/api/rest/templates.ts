import {
  SaveTemplateSchema,
  TemplateNameSchema,
  TemplatePageSchema,
  TemplateSchema,
} from '@cay/sdk/protocol';
import { z } from 'zod';
import type { Control } from '../../control/control.ts';
import { route, type Route } from '../http/route.ts';

const tag = 'templates';
const TemplateParams = z.object({ name: TemplateNameSchema });

export function templateRoutes(control: Control): Route[] {
  return [
    route({
      method: 'get',
      path: '/v1/templates',
      name: 'listTemplates',
      summary: 'List what sandboxes can start from',
      tag,
      answers: {
        200: {
          description: 'Those that the backend brings, and the project’s own',
          schema: TemplatePageSchema,
        },
      },
      handle: async ({ json, principal }) => json({ templates: await control.templates(principal) }),
    }),
    route({
      method: 'put',
      path: '/v1/templates/{name}',
      name: 'saveTemplate',
      summary: 'Make a template of a snapshot',
      description:
        'Sandboxes made from it start with the files of the snapshot and, if it has memory, with its processes running.',
      tag,
      params: TemplateParams,
      body: SaveTemplateSchema,
      answers: { 200: { description: 'The template', schema: TemplateSchema } },
      handle: async ({ json, principal, params, body }) =>
        json(await control.saveTemplate(principal, params.name, body)),
    }),
    route({
      method: 'delete',
      path: '/v1/templates/{name}',
      name: 'removeTemplate',
      summary: 'Remove a template; its snapshot stays',
      tag,
      params: TemplateParams,
      answers: { 204: { description: 'It is gone' } },
      handle: async ({ empty, principal, params }) =>
        empty(await control.removeTemplate(principal, params.name)),
    }),
  ];
}
