import { setTimeout as sleep } from 'node:timers/promises';
import { StatsSchema, type SandboxId, type Stats } from '@cay/sdk/protocol';
import { z } from 'zod';
import type { Control } from '../../control/open-control.ts';
import { Count, SandboxParams } from './parameters.ts';
import { route, type Route } from '../http/route.ts';
import { STREAMS, eventsAnswer } from '../http/stream-answer.ts';

const tag = 'stats';

export function statsRoutes(control: Control): Route[] {
  return [
    route({
      method: 'get',
      path: '/v1/sandboxes/{id}/stats',
      name: 'getStats',
      summary: 'Read what a sandbox uses',
      tag,
      params: SandboxParams,
      answers: { 200: { description: 'One reading', schema: StatsSchema } },
      async handle({ json, principal, params, signal }) {
        const { id } = control.get(principal, params.id);
        return json(await control.backend.stats(id, { signal }));
      },
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
        const { id } = control.get(principal, params.id);
        const first = await control.backend.stats(id, { signal });
        return eventsAnswer(
          context,
          readings(control, id, first, { intervalMs: Math.max(100, query.intervalMs ?? 1000), signal }),
        );
      },
    }),
  ];
}

async function* readings(
  control: Control,
  id: SandboxId,
  first: Stats,
  options: { intervalMs: number; signal: AbortSignal },
): AsyncGenerator<Stats> {
  yield first;
  for (;;) {
    await sleep(options.intervalMs, undefined, { signal: options.signal });
    yield await control.backend.stats(id, { signal: options.signal });
  }
}
