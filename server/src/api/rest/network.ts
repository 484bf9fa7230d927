import {
  AddNetworkRulesSchema,
  AnswerApprovalSchema,
  EgressApprovalListSchema,
  EgressAttemptListSchema,
  EgressAttemptSchema,
  SandboxNetworkSchema,
  SetNetworkSchema,
} from '@cay/sdk/protocol';
import { z } from 'zod';
import type { Control } from '../../control/control.ts';
import { route, type Route } from '../http/route.ts';
import { STREAMS, eventsAnswer, streamFormat } from '../http/stream-answer.ts';
import { Count, SandboxParams } from './parameters.ts';

const tag = 'network';
const one = { 200: { description: 'The network of the sandbox', schema: SandboxNetworkSchema } };

export function networkRoutes({ network }: Pick<Control, 'network'>): Route[] {
  return [
    route({
      method: 'get',
      path: '/v1/sandboxes/{id}/network',
      name: 'getNetwork',
      summary: 'Get what a sandbox may reach',
      tag,
      params: SandboxParams,
      answers: one,
      handle: async ({ json, principal, params }) => json(await network.get(principal, params.id)),
    }),
    route({
      method: 'put',
      path: '/v1/sandboxes/{id}/network',
      name: 'setNetwork',
      summary: 'Set what a sandbox may reach',
      description:
        'Holds at once: connections that are not allowed any more are cut. The policies of the project and of the installation bound it.',
      tag,
      params: SandboxParams,
      body: SetNetworkSchema,
      answers: one,
      handle: async ({ json, principal, params, body }) =>
        json(await network.set(principal, params.id, body.policy)),
    }),
    route({
      method: 'post',
      path: '/v1/sandboxes/{id}/network/rules',
      name: 'addNetworkRules',
      summary: 'Allow or deny more',
      description:
        'Adds rules to what the policy is now. A target that is allowed is taken out of the denied ones, and the other way round.',
      tag,
      params: SandboxParams,
      body: AddNetworkRulesSchema,
      answers: one,
      handle: async ({ json, principal, params, body }) =>
        json(await network.add(principal, params.id, body)),
    }),
    route({
      method: 'get',
      path: '/v1/sandboxes/{id}/network/attempts',
      name: 'listNetworkAttempts',
      summary: 'Read or follow what a sandbox tries to reach',
      description:
        'As JSON: the latest attempts, the latest first. As `text/event-stream` or `application/x-ndjson`: every further one as it ends. ' +
        'They are kept in memory, the latest thousand of each sandbox.',
      budget: 'stream',
      tag,
      params: SandboxParams,
      query: z.object({ limit: Count(1000).optional() }).strict(),
      answers: {
        200: {
          description: 'Attempts',
          schema: EgressAttemptListSchema,
          media: STREAMS,
          events: EgressAttemptSchema,
        },
      },
      async handle({ context, json, principal, params, query, signal }) {
        const format = streamFormat(context);
        if (format)
          return eventsAnswer(context, await network.follow(principal, params.id, { signal }), { format });
        const attempts = await network.attempts(principal, params.id);
        return json({ attempts: attempts.slice(0, query.limit ?? 100) });
      },
    }),
    route({
      method: 'get',
      path: '/v1/sandboxes/{id}/network/pending',
      name: 'listNetworkApprovals',
      summary: 'List attempts that wait for an approval',
      tag,
      params: SandboxParams,
      answers: { 200: { description: 'The oldest first', schema: EgressApprovalListSchema } },
      handle: async ({ json, principal, params }) =>
        json({ pending: await network.pending(principal, params.id) }),
    }),
    route({
      method: 'post',
      path: '/v1/sandboxes/{id}/network/pending/{approval}',
      name: 'answerNetworkApproval',
      summary: 'Allow or deny an attempt that waits',
      description: 'What is allowed stays so for `forMs`, for this attempt and others to the same target.',
      tag,
      params: SandboxParams.extend({ approval: z.string().regex(/^apr_[A-Za-z0-9_-]{1,40}$/) }),
      body: AnswerApprovalSchema,
      answers: { 204: { description: 'It is answered' } },
      handle: async ({ empty, principal, params, body }) =>
        empty(await network.answer(principal, params.id, params.approval, body)),
    }),
  ];
}
