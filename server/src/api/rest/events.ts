import { CayError, CayEventSchema, EventPageSchema } from '@cay/sdk/protocol';
import { z } from 'zod';
import type { Control } from '../../control/control.ts';
import { Count, Moment } from './parameters.ts';
import { route, type Route } from '../http/route.ts';
import { STREAMS, eventsAnswer, streamFormat } from '../http/stream-answer.ts';

export function eventRoutes(control: Pick<Control, 'events' | 'get'>): Route[] {
  return [
    route({
      method: 'get',
      path: '/v1/events',
      name: 'listEvents',
      summary: "Read or follow the project's events",
      description:
        'As JSON: kept events, up to `limit`. As `text/event-stream` or `application/x-ndjson`: kept events, then every further one as it happens. ' +
        'Both begin after the event `after` (or `Last-Event-ID`), at the time `since`, or with the last `tail` events, whichever comes last. ' +
        'Without any of them JSON begins with the oldest event, and a stream with the next one. ' +
        'Each event has its `outcome`, and as `actor` the name of the key that asked for it.',
      budget: 'stream',
      tag: 'events',
      headers: { 'Last-Event-ID': 'The last event that was seen' },
      query: z
        .object({
          after: Count(Number.MAX_SAFE_INTEGER).optional(),
          since: Moment.optional(),
          tail: Count(100_000).optional(),
          sandbox: z.string().min(1).max(80).optional(),
          limit: Count(1000).optional(),
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
      async handle({ context, json, request, principal, query, signal }) {
        const { since: sinceMs, tail } = query;
        // A removed sandbox still has its events, under its id.
        const sandbox =
          query.sandbox === undefined || query.sandbox.startsWith('sbx_')
            ? query.sandbox
            : (await control.get(principal, query.sandbox)).id;
        const after = query.after ?? lastSeen(request.headers['last-event-id']);
        const range = { after, sinceMs, tail, sandbox };
        const format = streamFormat(context);
        if (format)
          return eventsAnswer(context, control.events.follow(principal, { ...range, signal }), {
            format,
            id: (event) => event.id,
          });
        const limit = Math.max(1, query.limit ?? 1000);
        return json(await control.events.list(principal, { ...range, limit }));
      },
    }),
  ];
}

function lastSeen(header: string | string[] | undefined): number | undefined {
  if (header === undefined || header === '') return undefined;
  if (typeof header === 'string' && /^\d{1,15}$/.test(header)) return Number(header);
  throw new CayError('invalid_argument', 'Last-Event-ID is the number of an event');
}
