import {
  CreateSandboxSchema,
  ListSandboxesSchema,
  SandboxPageSchema,
  SandboxSchema,
  RemoveSandboxSchema,
  StopSandboxSchema,
  UpdateSandboxSchema,
  ValidationSchema,
} from '@cay/sdk/protocol';
import type { Control } from '../../control/control.ts';
import { requireOwnLabels } from '../e2b/labels.ts';
import { Flag, SandboxParams } from './parameters.ts';
import { requireAdmin } from '../../control/tenants/principal.ts';
import { route, type Route } from '../http/route.ts';
import { idempotencyKeyOf } from '../http/idempotency-key.ts';
import { traceOf } from '../http/trace.ts';

const tag = 'sandboxes';
const one = { 200: { description: 'The sandbox', schema: SandboxSchema } };

export function sandboxRoutes(control: Control): Route[] {
  return [
    route({
      method: 'post',
      path: '/v1/sandboxes',
      name: 'createSandbox',
      summary: 'Create a sandbox',
      description:
        'Answers when the sandbox is ready for commands. A repeated `Idempotency-Key` answers with the sandbox that the first call made.',
      tag,
      headers: { 'Idempotency-Key': 'Makes the call repeatable' },
      body: CreateSandboxSchema,
      answers: {
        200: { description: 'It existed already', schema: SandboxSchema },
        201: { description: 'It was created', schema: SandboxSchema },
      },
      async handle({ json, request, response, principal, body }) {
        requireOwnLabels(body.labels);
        const { sandbox, created } = await control.create(principal, body, {
          idempotencyKey: idempotencyKeyOf(request.headers),
        });
        traceOf(response).sandbox = sandbox.id;
        return json(sandbox, created ? 201 : 200);
      },
    }),
    route({
      method: 'post',
      path: '/v1/validate',
      name: 'validateSandbox',
      summary: 'Validate a create without creating anything',
      description:
        'Takes what a create takes and makes nothing. Answers which platform would be chosen, and all that would be refused or could not be honoured.',
      tag,
      body: CreateSandboxSchema,
      answers: {
        200: { description: 'The platform, and the problems that there are', schema: ValidationSchema },
      },
      handle: async ({ json, principal, body }) => json(await control.validate(principal, body)),
    }),
    route({
      method: 'get',
      path: '/v1/sandboxes',
      name: 'listSandboxes',
      summary: 'List sandboxes, newest first',
      tag,
      query: ListSandboxesSchema.extend({
        allProjects: Flag.optional().describe('Those of every project; needs an admin key'),
      }).strict(),
      answers: { 200: { description: 'A page of sandboxes', schema: SandboxPageSchema } },
      async handle({ json, principal, query: { allProjects = false, ...query } }) {
        if (allProjects) requireAdmin(principal);
        return json(await control.list(principal, query, { allProjects }));
      },
    }),
    route({
      method: 'get',
      path: '/v1/sandboxes/{id}',
      name: 'getSandbox',
      summary: 'Get a sandbox',
      tag,
      params: SandboxParams,
      answers: one,
      handle: async ({ json, principal, params }) => json(await control.get(principal, params.id)),
    }),
    route({
      method: 'patch',
      path: '/v1/sandboxes/{id}',
      name: 'updateSandbox',
      summary: 'Change labels, limits or timeout',
      tag,
      params: SandboxParams,
      body: UpdateSandboxSchema,
      answers: one,
      async handle({ json, principal, params, body }) {
        requireOwnLabels(body.labels, (await control.get(principal, params.id)).labels);
        return json(await control.update(principal, params.id, body));
      },
    }),
    route({
      method: 'delete',
      path: '/v1/sandboxes/{id}',
      name: 'removeSandbox',
      summary: 'Remove a sandbox and all that it has',
      description:
        'A sandbox that does not exist is removed already. With `Prefer: respond-async` the answer waits only until it is recorded that it is to go; ' +
        'should that fail, it is tried again. What it has changed is written to its buckets first; where that fails, ' +
        'it is not removed, unless `force` gives that up.',
      tag,
      headers: { Prefer: '`respond-async` to answer at once' },
      params: SandboxParams,
      query: RemoveSandboxSchema,
      answers: { 202: { description: 'It is being removed' }, 204: { description: 'It is gone' } },
      async handle({ context, empty, request, principal, params, query }) {
        const intent = Promise.withResolvers<void>();
        const removed = control.remove(principal, params.id, { ...query, onIntent: intent.resolve });
        if (/\brespond-async\b/.test(String(request.headers.prefer))) {
          // A refusal is answered at once. A failure after the intent was recorded is retried by the server.
          await Promise.race([intent.promise, removed]);
          removed.catch(() => {});
          return context.body(null, 202);
        }
        await removed;
        return empty();
      },
    }),
    route({
      method: 'post',
      path: '/v1/sandboxes/{id}/start',
      name: 'startSandbox',
      summary: 'Start a stopped or failed sandbox with the files it had',
      tag,
      params: SandboxParams,
      answers: one,
      handle: async ({ json, principal, params }) => json(await control.start(principal, params.id)),
    }),
    route({
      method: 'post',
      path: '/v1/sandboxes/{id}/stop',
      name: 'stopSandbox',
      summary: 'End all processes and keep the files',
      tag,
      params: SandboxParams,
      body: StopSandboxSchema,
      answers: one,
      handle: async ({ json, principal, params, body }) =>
        json(await control.stop(principal, params.id, body)),
    }),
  ];
}
