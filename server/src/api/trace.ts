import { randomUUID } from 'node:crypto';
import type { IncomingMessage, ServerResponse } from 'node:http';
import type { Principal } from '../control/principal.ts';

/** What is known about a request while it is served, for the log and the metrics. */
export interface Trace {
  id: string;
  startedAt: number;
  /** The route's pattern, never the path itself: it becomes a metric's label. */
  route: string;
  principal?: Principal;
  /** It goes on by itself and does not end because the server wants to. */
  endless?: boolean;
  /** Set when the answer is a failure of ours. */
  error?: unknown;
}

const traces = new WeakMap<ServerResponse, Trace>();
const ID = /^[A-Za-z0-9_.:-]{1,128}$/;

/** Takes the caller's request id if it is a sane one, and tells it back. */
export function beginTrace(request: IncomingMessage, response: ServerResponse): Trace {
  const given = request.headers['x-request-id'];
  const trace: Trace = {
    id: typeof given === 'string' && ID.test(given) ? given : randomUUID(),
    startedAt: performance.now(),
    route: 'none',
  };
  traces.set(response, trace);
  response.setHeader('X-Request-Id', trace.id);
  return trace;
}

export function traceOf(response: ServerResponse): Trace {
  const trace = traces.get(response);
  if (!trace) throw new Error('a response without a trace');
  return trace;
}
