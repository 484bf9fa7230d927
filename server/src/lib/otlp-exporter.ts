import { systemReason } from '@cay/sdk/system-error';
import { ignoreFailure, inBackground } from './in-background.ts';

/**
 * Sends finished spans to an OpenTelemetry collector as OTLP/HTTP in its JSON form.
 *
 * Adding a span costs a push to an array. Spans leave in batches, one batch at a time. The queue is bounded,
 * and a batch that the collector refuses is dropped: tracing must never delay the traced work.
 */
export interface OtlpSpan {
  /** 32 hex digits. */
  traceId: string;
  /** 16 hex digits. */
  spanId: string;
  parentSpanId?: string;
  traceState?: string;
  name: string;
  /** Milliseconds since the epoch; fractions count. */
  startMs: number;
  endMs: number;
  attributes: Attributes;
  failed?: boolean;
}

export type Attributes = Record<string, string | number | boolean>;

export interface OtlpOptions {
  /** The whole address, such as `http://localhost:4318/v1/traces`. */
  url: string;
  headers?: Record<string, string>;
  /** Resource attributes: `service.name` and so on. */
  resource: Attributes;
  scope: { name: string; version: string };
  /** Queued spans at most; further ones are dropped. Default 4096. */
  queueLimit?: number;
  /** How long a span waits for its batch to fill. Default 2000. */
  delayMs?: number;
  timeoutMs?: number;
  /** Called with what was dropped, at most once a minute. */
  onDrop?(dropped: { spans: number; reason: string }): void;
}

export interface OtlpExporter {
  add(span: OtlpSpan): void;
  /** Sends the queue, and gives up at the first batch that is refused. */
  close(): Promise<void>;
}

const BATCH = 512;
const REPORT_EVERY_MS = 60_000;
const KIND_SERVER = 2;
const STATUS_ERROR = 2;

export function otlpExporter(options: OtlpOptions): OtlpExporter {
  const { url, headers = {}, resource, scope, queueLimit = 4096, delayMs = 2000, timeoutMs = 5000 } = options;
  const head = { resource: { attributes: pairs(resource) } };
  let queue: OtlpSpan[] = [];
  let timer: NodeJS.Timeout | undefined;
  let sending: Promise<void> | undefined;
  let dropped = 0;
  let closing = false;
  let reportedAt = Number.NEGATIVE_INFINITY;

  function drop(spans: number, reason: string): void {
    dropped += spans;
    if (performance.now() - reportedAt < REPORT_EVERY_MS) return;
    reportedAt = performance.now();
    options.onDrop?.({ spans: dropped, reason });
    dropped = 0;
  }

  /** Resolves whether the collector took them. */
  async function send(spans: OtlpSpan[]): Promise<boolean> {
    try {
      const body = JSON.stringify({
        resourceSpans: [{ ...head, scopeSpans: [{ scope, spans: spans.map(encode) }] }],
      });
      const response = await fetch(url, {
        method: 'POST',
        headers: { ...headers, 'content-type': 'application/json' },
        body,
        redirect: 'manual',
        signal: AbortSignal.timeout(timeoutMs),
      });
      await response.body?.cancel();
      if (response.ok) return true;
      drop(spans.length, `the collector answered ${response.status}`);
    } catch (error) {
      drop(spans.length, `the collector did not answer: ${systemReason(error)}`);
    }
    return false;
  }

  async function flush(): Promise<void> {
    clearTimeout(timer);
    timer = undefined;
    while (queue.length > 0) {
      const spans = queue.slice(0, BATCH);
      queue = queue.slice(BATCH);
      if (!(await send(spans)) && closing) queue = [];
    }
  }

  function start(): Promise<void> {
    return (sending ??= flush().finally(() => {
      sending = undefined;
      if (queue.length > 0) arm();
    }));
  }

  function arm(): void {
    timer ??= setTimeout(() => inBackground(start(), ignoreFailure), delayMs).unref();
  }

  return {
    add(span) {
      if (queue.length >= queueLimit) return drop(1, 'too many spans wait for the collector');
      queue.push(span);
      if (queue.length >= BATCH) inBackground(start(), ignoreFailure);
      else if (!sending) arm();
    },
    async close() {
      closing = true;
      await sending;
      await start();
    },
  };
}

function encode(span: OtlpSpan): object {
  const { startMs, endMs, attributes, failed, ...rest } = span;
  return {
    ...rest,
    kind: KIND_SERVER,
    startTimeUnixNano: nanoseconds(startMs),
    endTimeUnixNano: nanoseconds(endMs),
    attributes: pairs(attributes),
    status: failed ? { code: STATUS_ERROR } : {},
  };
}

/** In decimal, because a JSON number cannot hold it. */
function nanoseconds(ms: number): string {
  return `${BigInt(Math.round(ms * 1000))}000`;
}

function pairs(attributes: Attributes): object[] {
  return Object.entries(attributes).map(([key, value]) => ({
    key,
    value:
      typeof value === 'string'
        ? { stringValue: value }
        : typeof value === 'boolean'
          ? { boolValue: value }
          : { intValue: String(value) },
  }));
}
