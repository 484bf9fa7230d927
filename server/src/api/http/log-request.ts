import type { IncomingMessage, ServerResponse } from 'node:http';
import type { Logger } from 'pino';
import { safePath } from '../../control/events/redact.ts';
import type { Metrics } from './metrics.ts';
import type { Trace } from './trace.ts';
import type { RequestSpans } from './tracing/request-spans.ts';

/**
 * Refusals that anonymous clients can cause at any rate. They are logged at `debug`; the audit writes them
 * once a minute.
 */
const REFUSALS = [401, 429];

/** What writes the metric, the span and the log line of a request that has ended. */
export function requestLog({
  log,
  metrics,
  spans,
}: {
  log: Logger;
  metrics: Metrics;
  spans: RequestSpans | undefined;
}) {
  return (request: IncomingMessage, response: ServerResponse, trace: Trace): void => {
    const durationMs = performance.now() - trace.startedAt;
    metrics.request(trace.route, response.statusCode, durationMs / 1000);
    spans?.end(request, trace, response.statusCode);
    const level = levelOf(request, response.statusCode, trace);
    if (!log.isLevelEnabled(level)) return;
    log[level](
      {
        requestId: trace.id,
        method: request.method,
        path: safePath(request.url),
        status: response.statusCode,
        ms: Math.round(durationMs * 100) / 100,
        key: trace.principal?.key,
        ...(trace.error !== undefined && { err: trace.error }),
        ...(!response.writableFinished && { aborted: true }),
      },
      trace.route,
    );
  };
}

function levelOf({ method }: IncomingMessage, status: number, trace: Trace): 'error' | 'info' | 'debug' {
  if (trace.error !== undefined || (status >= 500 && !trace.expected)) return 'error';
  if (method === 'GET' || method === 'HEAD' || (!trace.principal && REFUSALS.includes(status)))
    return 'debug';
  return 'info';
}
