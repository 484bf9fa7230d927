import { AuditEventSchema, AuditVerdictSchema } from '@cay/sdk/protocol';
import { z } from 'zod';
import type { Control } from '../../control/control.ts';
import { Moment } from './parameters.ts';
import { route, type Route } from '../http/route.ts';
import { STREAMS, eventsAnswer } from '../http/stream-answer.ts';

const tag = 'audit';
const Name = z.string().min(1).max(80);

export function auditRoutes({ events }: Pick<Control, 'events'>): Route[] {
  return [
    route({
      method: 'get',
      path: '/v1/audit/verify',
      name: 'verifyAudit',
      summary: 'Verify that no event was changed, removed, inserted or moved',
      description:
        'Walks the chain of hashes from the first event that is kept to the last, checkpoints included. `head` is worth noting elsewhere: ' +
        'with it you can verify later that no earlier event was changed.',
      tag,
      access: 'admin',
      answers: {
        200: {
          description: 'Whether it is whole, and otherwise where it breaks',
          schema: AuditVerdictSchema,
        },
      },
      handle: async ({ json, principal }) => json(await events.verify(principal)),
    }),
    route({
      method: 'get',
      path: '/v1/audit/export',
      name: 'exportAudit',
      summary: 'Stream the events of all projects with their hashes',
      tag,
      access: 'admin',
      query: z
        .object({
          sandbox: Name.optional(),
          type: Name.optional(),
          key: Name.optional(),
          since: Moment.optional(),
          until: Moment.optional(),
        })
        .strict(),
      answers: { 200: { description: 'Events, oldest first', media: STREAMS, events: AuditEventSchema } },
      handle: ({ context, principal, query: { since, until, ...query } }) =>
        eventsAnswer(context, events.export(principal, { ...query, sinceMs: since, untilMs: until }), {
          id: (event) => event.id,
        }),
    }),
  ];
}
