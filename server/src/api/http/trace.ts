import { randomUUID } from 'node:crypto';
import type { IncomingMessage, ServerResponse } from 'node:http';
import type { Principal } from '../../control/tenants/principal.ts';
import type { Share } from './budgets.ts';
import type { RequestSpan } from './tracing/request-spans.ts';

/** What is known about a request while it is served, for the log and the metrics. */
export interface Trace {
  id: string;
  startedAt: number;
  /** The route's pattern, never the path itself: it becomes a metric's label. */
  route: string;
  /** The same as OpenAPI writes it, with names in place of ids. */
  path?: string;
  principal?: Principal;
  /** The sandbox as the request names it. */
  sandbox?: string;
  /** Present if requests are traced. */
  span?: RequestSpan;
  /** What it has taken of its project's budgets. */
  share?: Share;
  /** It goes on by itself and does not end because the server wants to. */
  endless?: boolean;
  /** Its status says something about a sandbox, and nothing about the server. */
  expected?: boolean;
  /** Set when the answer is a failure of ours. */
  error?: unknown;
}

const traces = new WeakMap<ServerResponse, Trace>();
const ID = /^[A-Za-z0-9_.:-]{1,128}$/;

/** Takes the caller's request id if it is a sane one. */
export function newTrace(request: IncomingMessage): Trace {
  const given = request.headers['x-request-id'];
  return {
    id: typeof given === 'string' && ID.test(given) ? given : randomUUID(),
    startedAt: performance.now(),
    route: 'none',
  };
}

/** A trace that belongs to an answer, which tells its id back. */
export function beginTrace(request: IncomingMessage, response: ServerResponse): Trace {
  const trace = newTrace(request);
  traces.set(response, trace);
  response.setHeader('X-Request-Id', trace.id);
  return trace;
}

export function traceOf(response: ServerResponse): Trace {
  const trace = traces.get(response);
  if (!trace) throw new Error('a response without a trace');
  return trace;
}
