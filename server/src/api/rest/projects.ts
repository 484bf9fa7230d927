import {
  CayError,
  CreateProjectSchema,
  ProjectListSchema,
  ProjectSchema,
  UpdateProjectSchema,
} from '@cay/sdk/protocol';
import { z } from 'zod';
import type { Idempotency } from '../../control/tenants/idempotency.ts';
import type { EventLog } from '../../control/events/event-log.ts';
import type { KeyRecords } from '../../records/keys.ts';
import type { ProjectRecords } from '../../records/projects.ts';
import type { TokenEpochs } from '../../control/tenants/token-epochs.ts';
import { route, type Route } from '../http/route.ts';
import { idempotencyKeyOf } from '../../control/commands/start-command.ts';

const tag = 'projects';

export interface ProjectRouteOptions {
  projects: ProjectRecords;
  keys: KeyRecords;
  epochs: TokenEpochs;
  events: EventLog;
  idempotency: Idempotency;
}

export function projectRoutes({ projects, keys, epochs, events, idempotency }: ProjectRouteOptions): Route[] {
  return [
    route({
      method: 'get',
      path: '/v1/projects',
      name: 'listProjects',
      summary: 'List projects: an admin sees all, others their own',
      tag,
      answers: { 200: { description: 'Projects, oldest first', schema: ProjectListSchema } },
      handle: ({ json, principal }) =>
        json({
          projects: projects
            .list()
            .filter(({ id }) => principal.role === 'admin' || id === principal.project),
        }),
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
      handle({ json, request, principal, body }) {
        const { value: project, repeated } = idempotency.once(
          {
            project: principal.project,
            key: idempotencyKeyOf(request.headers),
            request: { createProject: body },
          },
          {
            make() {
              const made = projects.create(body.name, body.quota);
              events.append({
                type: 'project.created',
                project: made.id,
                key: principal.key,
                data: { name: made.name },
              });
              return { id: made.id, value: made };
            },
            again: (id) => projects.get(id),
          },
        );
        return json(project, repeated ? 200 : 201);
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
      handle({ json, principal, params, body }) {
        const project = projects.get(params.project) ?? projects.byName(params.project);
        if (!project) throw new CayError('not_found', `Project "${params.project}" does not exist`);
        const updated = projects.setQuota(project.id, body.quota);
        events.append({
          type: 'project.updated',
          project: project.id,
          key: principal.key,
          data: { quota: updated.quota },
        });
        return json(updated);
      },
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
      handle({ context, principal, params }) {
        const project = projects.get(params.project) ?? projects.byName(params.project);
        if (!project) return context.body(null, 204);
        if (project.id === principal.project)
          throw new CayError(
            'failed_precondition',
            `Cannot remove project "${project.name}": it is your own`,
            {
              hint: 'use an admin key of another project',
            },
          );
        projects.requireEmpty(project.id);
        // One by one, so that no key is still known by its use before.
        for (const { id } of keys.list(project.id)) keys.revoke(id);
        projects.remove(project.id);
        events.append({
          type: 'project.removed',
          project: principal.project,
          key: principal.key,
          data: { id: project.id, name: project.name },
        });
        return context.body(null, 204);
      },
    }),
    route({
      method: 'post',
      path: '/v1/projects/{project}/revoke-tokens',
      name: 'revokeTokens',
      summary: "Make a project's tokens and signed addresses worthless",
      description:
        'Access tokens, traffic tokens and tokens of private ports, signed addresses and upload links, all that were given out before: ' +
        'whoever has a key asks for new ones. Keys stay as they are, and so do connections that are open. Others than admins can do it in their own project.',
      tag,
      params: z.object({ project: z.string().min(1).max(100).describe("The project's id or its name") }),
      answers: { 204: { description: 'None of them opens anything any more' } },
      handle({ context, principal, params }) {
        const project = projects.get(params.project) ?? projects.byName(params.project);
        if (!project || (principal.role !== 'admin' && project.id !== principal.project)) {
          throw new CayError('not_found', `Project "${params.project}" does not exist`);
        }
        epochs.revoke(project.id);
        events.append({ type: 'project.tokens_revoked', project: project.id, key: principal.key });
        return context.body(null, 204);
      },
    }),
  ];
}
