import { randomUUID } from 'node:crypto';
import type { IncomingMessage, ServerResponse } from 'node:http';
import type { Principal } from '../../control/tenants/principal.ts';
import type { Share } from './budgets.ts';
import type { RequestSpan } from './tracing/request-spans.ts';

/** Facts about a request while it is served, for the log and the metrics. */
export interface Trace {
  id: string;
  startedAt: number;
  /** The route's pattern, never the path itself: it becomes a metric's label. */
  route: string;
  /** The path template of the route. */
  path?: string;
  principal?: Principal;
  /** The sandbox as the request names it. */
  sandbox?: string;
  /** Present if requests are traced. */
  span?: RequestSpan;
  /** Its share of the project's budgets. */
  share?: Share;
  /** The answer has no end of its own, so a server that closes ends it. */
  endless?: boolean;
  /** The status comes from an application in a sandbox, and says nothing about the server. */
  expected?: boolean;
  /** Set if the server failed. */
  error?: unknown;
}

const traces = new WeakMap<ServerResponse, Trace>();
const ID = /^[A-Za-z0-9_.:-]{1,128}$/;

/** Uses the client's request id if it is well formed. */
export function newTrace(request: IncomingMessage): Trace {
  const given = request.headers['x-request-id'];
  return {
    id: typeof given === 'string' && ID.test(given) ? given : randomUUID(),
    startedAt: performance.now(),
    route: 'none',
  };
}

/** The trace of an answer, which returns the request's id to the client. */
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
