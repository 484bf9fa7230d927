import { CayError, CayEventSchema, EventPageSchema } from '@cay/sdk/protocol';
import { z } from 'zod';
import type { Control } from '../../control/open-control.ts';
import { Count } from './parameters.ts';
import { route, type Route } from '../http/route.ts';
import { STREAMS, eventsAnswer, streamFormat } from '../http/stream-answer.ts';

export function eventRoutes(control: Control): Route[] {
  return [
    route({
      method: 'get',
      path: '/v1/events',
      name: 'listEvents',
      summary: "Read or follow the project's events",
      description:
        'As JSON: those that are kept after `after`, up to `limit`. As `text/event-stream` or `application/x-ndjson`: the same, then every further one as it happens; ' +
        'a reader that comes back resumes with `Last-Event-ID` or `after`, and one that gives neither begins now.',
      budget: 'stream',
      tag: 'events',
      headers: { 'Last-Event-ID': 'The last event that was seen' },
      query: z
        .object({
          after: Count(Number.MAX_SAFE_INTEGER).optional(),
          sandbox: z.string().min(1).max(80).optional(),
          limit: Count(1000).optional(),
          tail: Count(1000).optional().describe('The newest so many; JSON only'),
        })
        .strict(),
      answers: {
        200: {
          description: 'Events, oldest first',
          schema: EventPageSchema,
          media: STREAMS,
          events: CayEventSchema,
        },
      },
      handle({ context, json, request, principal, query, signal }) {
        const { project } = principal;
        // A sandbox that is gone still has its events, under its id.
        const sandbox =
          query.sandbox === undefined || query.sandbox.startsWith('sbx_')
            ? query.sandbox
            : control.get(principal, query.sandbox).id;
        const after = query.after ?? lastSeen(request.headers['last-event-id']);
        const format = streamFormat(context);
        if (format)
          return eventsAnswer(context, control.events.follow({ after, project, sandbox, signal }), {
            format,
            id: (event) => event.id,
          });
        const events = control.events.list({
          after,
          project,
          sandbox,
          limit: Math.max(1, query.tail ?? query.limit ?? 1000),
          newest: query.tail !== undefined,
        });
        return json({ events, last: events.at(-1)?.id ?? after ?? 0 });
      },
    }),
  ];
}

function lastSeen(header: string | string[] | undefined): number | undefined {
  if (header === undefined || header === '') return undefined;
  if (typeof header === 'string' && /^\d{1,15}$/.test(header)) return Number(header);
  throw new CayError('invalid_argument', 'Last-Event-ID is the number of an event');
}
