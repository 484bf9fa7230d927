import {
  CreateProjectSchema,
  ProjectListSchema,
  ProjectSchema,
  ProjectUsageSchema,
  UpdateProjectSchema,
} from '@cay/sdk/protocol';
import { z } from 'zod';
import type { Control } from '../../control/control.ts';
import { route, type Route } from '../http/route.ts';
import { idempotencyKeyOf } from '../http/idempotency-key.ts';

const tag = 'projects';

export function projectRoutes({ projects }: Pick<Control, 'projects'>): Route[] {
  return [
    route({
      method: 'get',
      path: '/v1/projects',
      name: 'listProjects',
      summary: 'List projects: an admin sees all, others their own',
      tag,
      answers: { 200: { description: 'Projects, oldest first', schema: ProjectListSchema } },
      handle: async ({ json, principal }) => json({ projects: await projects.list(principal) }),
    }),
    route({
      method: 'post',
      path: '/v1/projects',
      name: 'createProject',
      summary: 'Create a project',
      tag,
      access: 'admin',
      headers: { 'Idempotency-Key': 'Makes the call repeatable' },
      body: CreateProjectSchema,
      answers: {
        200: { description: 'It was created by an earlier call', schema: ProjectSchema },
        201: { description: 'The project', schema: ProjectSchema },
      },
      async handle({ json, request, principal, body }) {
        const { value, repeated } = await projects.create(principal, body, {
          idempotencyKey: idempotencyKeyOf(request.headers),
        });
        return json(value, repeated ? 200 : 201);
      },
    }),
    route({
      method: 'patch',
      path: '/v1/projects/{project}',
      name: 'updateProject',
      summary: "Change a project's quota",
      tag,
      access: 'admin',
      params: z.object({ project: z.string().min(1).max(100).describe("The project's id or its name") }),
      body: UpdateProjectSchema,
      answers: { 200: { description: 'The project', schema: ProjectSchema } },
      handle: async ({ json, principal, params, body }) =>
        json(await projects.update(principal, params.project, body)),
    }),
    route({
      method: 'get',
      path: '/v1/projects/{project}/usage',
      name: 'getProjectUsage',
      summary: 'What a project has of each of its quotas; an admin may ask for any, others for their own',
      tag,
      params: z.object({ project: z.string().min(1).max(100).describe("The project's id or its name") }),
      answers: {
        200: { description: 'Of each quota, what is in use and the limit', schema: ProjectUsageSchema },
      },
      handle: async ({ json, principal, params }) => json(await projects.usage(principal, params.project)),
    }),
    route({
      method: 'delete',
      path: '/v1/projects/{project}',
      name: 'removeProject',
      summary: 'Remove a project and revoke its keys',
      description:
        'A project that does not exist is removed already. One that has sandboxes, snapshots, templates or webhooks is refused, and so is your own.',
      tag,
      access: 'admin',
      params: z.object({ project: z.string().min(1).max(100).describe("The project's id or its name") }),
      answers: { 204: { description: 'It is gone' } },
      handle: async ({ empty, principal, params }) => empty(await projects.remove(principal, params.project)),
    }),
    route({
      method: 'post',
      path: '/v1/projects/{project}/revoke-tokens',
      name: 'revokeTokens',
      summary: "Revoke a project's tokens and signed addresses",
      description:
        'Access tokens, traffic tokens and tokens of private ports, signed addresses and upload links, all that were given out before: ' +
        'callers with a key ask for new ones. API keys stay valid, and open connections stay open. A member can do it in its own project.',
      tag,
      params: z.object({ project: z.string().min(1).max(100).describe("The project's id or its name") }),
      answers: { 204: { description: 'All of them are revoked' } },
      handle: async ({ empty, principal, params }) =>
        empty(await projects.revokeTokens(principal, params.project)),
    }),
  ];
}
