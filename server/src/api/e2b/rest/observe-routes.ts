/** What E2B's API tells of sandboxes beside what they are: readings of several, and logs. */
import { CayError, type CayEvent, type Sandbox } from '@cay/sdk/protocol';
import { z } from 'zod';
import type { Control } from '../../../control/control.ts';
import type { Principal } from '../../../control/tenants/principal.ts';
import { route, type Route } from '../../http/route.ts';
import { parseE2bId, toE2bId } from '../sandbox-id.ts';
import { measure } from './measure.ts';
import { findSandbox, type E2bRouteOptions } from './starting-routes.ts';

const tag = 'e2b';
const Params = z.object({ id: z.string().max(80) });
const MOST_SANDBOXES = 100;
const LOG_PAGE = 1000;
const LEVELS = ['debug', 'info', 'warn', 'error'] as const;
const DENIED = new Set(['unauthenticated', 'permission_denied']);
const Milliseconds = z.coerce.number().int().min(0).optional();
const Limit = z.coerce.number().int().min(0).max(LOG_PAGE).default(LOG_PAGE);

export function observeRoutes({ control }: Pick<E2bRouteOptions, 'control'>): Route[] {
  return [
    route({
      method: 'get',
      path: '/health',
      name: 'e2bHealth',
      summary: 'Whether the API is there',
      tag,
      access: 'open',
      answers: { 200: { description: 'It is' } },
      handle: ({ context }) => context.text('OK', 200),
    }),
    route({
      method: 'get',
      path: '/sandboxes/metrics',
      name: 'e2bListMetrics',
      summary: 'Read what several sandboxes use',
      tag,
      query: z.object({ sandbox_ids: z.union([z.string(), z.array(z.string())]) }),
      answers: { 200: { description: 'Readings by sandbox' } },
      async handle({ json, principal, query, signal }) {
        const ids = new Set([query.sandbox_ids].flat().flatMap((text) => text.split(',')));
        if (ids.size > MOST_SANDBOXES)
          throw new CayError('invalid_argument', `At most ${MOST_SANDBOXES} sandboxes can be asked for`);
        const running = await runningOf(control, principal, [...ids]);
        const readings = await Promise.all(
          running.map(async ({ id }) => {
            const reading = await measure(control, principal, id, signal).catch(() => undefined);
            return [toE2bId(id), reading] as const;
          }),
        );
        return json({ sandboxes: Object.fromEntries(readings.filter(([, reading]) => reading)) });
      },
    }),
    route({
      method: 'get',
      path: '/v2/sandboxes/{id}/logs',
      name: 'e2bGetLogs',
      summary: 'Read what happened to a sandbox',
      tag,
      params: Params,
      query: z.object({
        cursor: Milliseconds,
        limit: Limit,
        direction: z.enum(['forward', 'backward']).default('forward'),
        level: z.enum(LEVELS).default('debug'),
        search: z.string().max(256).optional(),
      }),
      answers: { 200: { description: 'Entries' } },
      async handle({ json, principal, params, query }) {
        const { cursor, limit, direction, level, search } = query;
        const { id } = await findSandbox(control, principal, params.id);
        const events = await eventsOf(control, principal, id, {
          backward: direction === 'backward',
          limit,
          fromMs: cursor,
          keep: (entry) =>
            LEVELS.indexOf(entry.level) >= LEVELS.indexOf(level) &&
            (search === undefined || entry.message.includes(search)),
        });
        return json({ logs: events });
      },
    }),
    route({
      method: 'get',
      path: '/sandboxes/{id}/logs',
      name: 'e2bGetLogsOld',
      summary: 'Read what happened to a sandbox',
      tag,
      params: Params,
      query: z.object({ start: Milliseconds, limit: Limit }),
      answers: { 200: { description: 'Entries' } },
      async handle({ json, principal, params, query }) {
        const { id } = await findSandbox(control, principal, params.id);
        const entries = await eventsOf(control, principal, id, { limit: query.limit, fromMs: query.start });
        return json({
          logs: entries.map(({ timestamp, message }) => ({ timestamp, line: message })),
          logEntries: entries,
        });
      },
    }),
  ];
}

/** Those that run and are the principal's. */
async function runningOf(control: Control, principal: Principal, ids: string[]): Promise<Sandbox[]> {
  const found: Sandbox[] = [];
  for (const text of ids) {
    if (!parseE2bId(text)) continue;
    try {
      const sandbox = await findSandbox(control, principal, text);
      if (sandbox.state === 'active') found.push(sandbox);
    } catch (error) {
      if (!(error instanceof CayError) || error.code !== 'not_found') throw error;
    }
  }
  return found;
}

interface LogEntry {
  timestamp: string;
  level: (typeof LEVELS)[number];
  message: string;
  fields: Record<string, string>;
}

interface LogRange {
  backward?: boolean;
  limit: number;
  /** From this time on, or back from it. */
  fromMs?: number | undefined;
  keep?(entry: LogEntry): boolean;
}

/** The events of a sandbox are its log. */
async function eventsOf(
  control: Control,
  principal: Principal,
  sandbox: string,
  { backward = false, limit, fromMs, keep = () => true }: LogRange,
): Promise<LogEntry[]> {
  const range = backward || fromMs === undefined ? { tail: LOG_PAGE } : { sinceMs: fromMs };
  const { events } = await control.events.list(principal, { ...range, sandbox, limit: LOG_PAGE });
  const inRange = backward && fromMs !== undefined ? events.filter(({ atMs }) => atMs <= fromMs) : events;
  const entries = inRange.map(entryOf).filter(keep);
  return (backward ? entries.toReversed() : entries).slice(0, limit);
}

function entryOf({ atMs, type, actor, outcome, data }: CayEvent): LogEntry {
  const fields = Object.entries(data).map(([name, value]) => [
    name,
    typeof value === 'string' ? value : JSON.stringify(value),
  ]);
  return {
    timestamp: new Date(atMs).toISOString(),
    level: outcome === 'ok' ? 'info' : DENIED.has(outcome) ? 'warn' : 'error',
    message: actor ? `${type} by ${actor}` : type,
    fields: Object.fromEntries(fields) as Record<string, string>,
  };
}
