/** One span for each request, from its first byte to the end of its answer. */
import type { IncomingMessage } from 'node:http';
import type { Attributes, OtlpExporter } from '../../../lib/otlp-exporter.ts';
import { childOf, parseTraceparent, type TraceContext } from '../../../lib/trace-context.ts';
import type { Trace } from '../trace.ts';

export interface RequestSpan extends TraceContext {
  parentSpanId?: string;
  traceState?: string;
}

export interface RequestSpans {
  /** Continues the trace that the request names, if it names one. */
  begin(request: IncomingMessage): RequestSpan;
  end(request: IncomingMessage, trace: Trace, status: number): void;
  close(): Promise<void>;
}

const MAX_STATE = 512;

export function requestSpans(exporter: OtlpExporter): RequestSpans {
  return {
    begin({ headers }) {
      const { traceparent, tracestate } = headers;
      const parent = typeof traceparent === 'string' ? parseTraceparent(traceparent) : undefined;
      const state = typeof tracestate === 'string' && tracestate.length <= MAX_STATE ? tracestate : undefined;
      return {
        ...childOf(parent),
        ...(parent && { parentSpanId: parent.spanId }),
        ...(parent && state !== undefined && { traceState: state }),
      };
    },
    end(request, trace, status) {
      const { span } = trace;
      // The client that began the trace may have decided not to sample it.
      if (!span?.sampled) return;
      const { traceId, spanId, parentSpanId, traceState } = span;
      exporter.add({
        traceId,
        spanId,
        ...(parentSpanId !== undefined && { parentSpanId }),
        ...(traceState !== undefined && { traceState }),
        name: trace.path === undefined ? (request.method ?? '') : `${request.method} ${trace.path}`,
        startMs: performance.timeOrigin + trace.startedAt,
        endMs: performance.timeOrigin + performance.now(),
        attributes: attributesOf(request, trace, status),
        failed: trace.error !== undefined || status >= 500,
      });
    },
    close: () => exporter.close(),
  };
}

/** The sandbox as the request names it, by id or name. Text that looks like a key is left out. */
function sandboxOf({ sandbox }: Trace): Attributes {
  if (sandbox === undefined || sandbox.length > 80 || sandbox.includes('e2b_')) return {};
  return sandbox.startsWith('sbx_') ? { 'cay.sandbox.id': sandbox } : { 'cay.sandbox.name': sandbox };
}

/** Spans have ids and path templates. Paths, headers and bodies as they were sent are left out. */
function attributesOf(request: IncomingMessage, trace: Trace, status: number): Attributes {
  return {
    'http.request.method': request.method ?? '',
    'http.response.status_code': status,
    'cay.request.id': trace.id,
    'cay.operation': trace.route,
    ...(trace.path !== undefined && { 'http.route': trace.path }),
    ...(trace.principal && { 'cay.project.id': trace.principal.project }),
    ...sandboxOf(trace),
    ...(status >= 500 && { 'error.type': String(status) }),
  };
}
