import { SandboxSpaceSchema, StatsHistorySchema, StatsSchema } from '@cay/sdk/protocol';
import { z } from 'zod';
import type { Control } from '../../control/control.ts';
import { Count, SandboxParams } from './parameters.ts';
import { route, type Route } from '../http/route.ts';
import { STREAMS, eventsAnswer } from '../http/stream-answer.ts';

const tag = 'stats';
const SHORTEST_INTERVAL_MS = 100;
const DEFAULT_INTERVAL_MS = 1000;
/** Milliseconds since 1970. */
const Moment = Count(Number.MAX_SAFE_INTEGER);

export function statsRoutes(control: Pick<Control, 'stats' | 'samples' | 'statsHistory' | 'space'>): Route[] {
  return [
    route({
      method: 'get',
      path: '/v1/sandboxes/{id}/stats',
      name: 'getStats',
      summary: 'Read what a sandbox uses',
      tag,
      params: SandboxParams,
      answers: { 200: { description: 'One reading', schema: StatsSchema } },
      handle: async ({ json, principal, params, signal }) =>
        json(await control.stats(principal, params.id, { signal })),
    }),
    route({
      method: 'get',
      path: '/v1/sandboxes/{id}/stats/stream',
      name: 'streamStats',
      summary: 'Stream what a sandbox uses',
      budget: 'stream',
      tag,
      params: SandboxParams,
      query: z.object({ intervalMs: Count(3_600_000).optional() }).strict(),
      answers: { 200: { description: 'A reading at every interval', media: STREAMS, events: StatsSchema } },
      async handle({ context, principal, params, query, signal }) {
        const intervalMs = Math.max(SHORTEST_INTERVAL_MS, query.intervalMs ?? DEFAULT_INTERVAL_MS);
        return eventsAnswer(context, await control.samples(principal, params.id, { intervalMs, signal }));
      },
    }),
    route({
      method: 'get',
      path: '/v1/sandboxes/{id}/stats/history',
      name: 'getStatsHistory',
      summary: 'Read what a sandbox used in the past',
      description: 'Some hours are kept, over restarts of the server, also of a sandbox that does not run.',
      tag,
      params: SandboxParams,
      query: z.object({ sinceMs: Moment.optional(), untilMs: Moment.optional() }).strict(),
      answers: { 200: { description: 'Samples, the oldest first', schema: StatsHistorySchema } },
      handle: async ({ json, principal, params, query }) =>
        json(await control.statsHistory(principal, params.id, query)),
    }),
    route({
      method: 'get',
      path: '/v1/sandboxes/{id}/space',
      name: 'getSpace',
      summary: 'Read what a sandbox takes on disk, in every state',
      tag,
      params: SandboxParams,
      answers: {
        200: { description: 'Its files, its memory and its snapshots', schema: SandboxSpaceSchema },
      },
      handle: async ({ json, principal, params }) => json(await control.space(principal, params.id)),
    }),
  ];
}
