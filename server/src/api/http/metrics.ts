import type { ControlMetrics } from '../../control/capacity/control-metrics.ts';
import { openHistogram, type Histogram, type HistogramSnapshot } from '../../lib/histogram.ts';
import { openLoopDelay } from '../../lib/loop-delay.ts';

/**
 * Metrics of the server in Prometheus' text format: its HTTP requests, its process, and the figures of the
 * control plane. Labels are of small sets: route names, status classes, states, and projects with a quota.
 */
export interface Metrics {
  request(route: string, status: number, seconds: number): void;
  /** An upgraded connection: a WebSocket, or an upgrade that a preview forwards. */
  socketOpened(route: string): void;
  socketClosed(route: string, bytes: { received: number; sent: number }): void;
  /** A failure that only the process's own handler caught. */
  unhandled(): void;
  text(): Promise<string>;
  close(): void;
}

export interface MetricsOptions {
  version: string;
  control(): Promise<ControlMetrics>;
}

/** Resolution of the event loop's delay. The measured delay includes it. */
const RESOLUTION_MS = 20;

interface Series {
  byClass: Map<string, number>;
  seconds: Histogram;
}

type Labels = Record<string, string | number>;

export function openMetrics(options: MetricsOptions): Metrics {
  const routes = new Map<string, Series>();
  const sockets = new Map<string, { open: number; total: number; received: number; sent: number }>();
  let unhandled = 0;
  const delay = openLoopDelay({ resolutionMs: RESOLUTION_MS });

  function seriesOf(route: string): Series {
    let series = routes.get(route);
    if (!series) routes.set(route, (series = { byClass: new Map(), seconds: openHistogram() }));
    return series;
  }

  function socketsOf(route: string) {
    let counts = sockets.get(route);
    if (!counts) sockets.set(route, (counts = { open: 0, total: 0, received: 0, sent: 0 }));
    return counts;
  }

  return {
    unhandled: () => void unhandled++,
    socketOpened(route) {
      const counts = socketsOf(route);
      counts.open++;
      counts.total++;
    },
    socketClosed(route, { received, sent }) {
      const counts = socketsOf(route);
      counts.open--;
      counts.received += received;
      counts.sent += sent;
    },
    request(route, status, seconds) {
      const series = seriesOf(route);
      const kind = `${Math.floor(status / 100)}xx`;
      series.byClass.set(kind, (series.byClass.get(kind) ?? 0) + 1);
      series.seconds.observe(seconds);
    },
    async text() {
      const control = await options.control();
      const text = textFormat();
      text.metric('cay_build_info', 'gauge', 'The version that runs.');
      text.sample('cay_build_info', { version: options.version }, 1);
      writeRequests(text);
      writeSockets(text);
      writeControl(text, control);
      writeProcess(text);
      return text.end();
    },
    close: () => delay.close(),
  };

  function writeRequests(text: TextFormat): void {
    text.metric('cay_http_requests_total', 'counter', 'Requests by route and class of status.');
    for (const [route, { byClass }] of routes)
      for (const [status, count] of byClass) text.sample('cay_http_requests_total', { route, status }, count);
    text.metric(
      'cay_http_request_duration_seconds',
      'histogram',
      'How long requests took, streams included.',
    );
    for (const [route, { seconds }] of routes)
      text.histogram('cay_http_request_duration_seconds', { route }, seconds.snapshot());
  }

  function writeSockets(text: TextFormat): void {
    text.metric('cay_websockets_open', 'gauge', 'WebSockets that are open now.');
    for (const [route, { open }] of sockets) text.sample('cay_websockets_open', { route }, open);
    text.metric('cay_websockets_total', 'counter', 'WebSockets that were opened.');
    for (const [route, { total }] of sockets) text.sample('cay_websockets_total', { route }, total);
    text.metric('cay_websocket_bytes_total', 'counter', 'Bytes of WebSockets that were closed.');
    for (const [route, { received, sent }] of sockets) {
      text.sample('cay_websocket_bytes_total', { route, direction: 'received' }, received);
      text.sample('cay_websocket_bytes_total', { route, direction: 'sent' }, sent);
    }
  }

  function writeProcess(text: TextFormat): void {
    text.metric(
      'cay_unhandled_failures_total',
      'counter',
      'Failures that nothing caught. Each is a fault of the server.',
    );
    text.sample('cay_unhandled_failures_total', {}, unhandled);
    text.metric('cay_event_loop_delay_seconds', 'gauge', 'How late timers were in the last minute or so.');
    for (const quantile of [50, 99])
      text.sample(
        'cay_event_loop_delay_seconds',
        { quantile: quantile / 100 },
        delay.delayMs(quantile) / 1000,
      );
    text.metric('process_resident_memory_bytes', 'gauge', 'Memory that the server holds.');
    text.sample('process_resident_memory_bytes', {}, process.memoryUsage.rss());
    text.metric('process_heap_bytes', 'gauge', 'Heap in use.');
    text.sample('process_heap_bytes', {}, process.memoryUsage().heapUsed);
    text.metric('process_uptime_seconds', 'gauge', 'How long the server runs.');
    text.sample('process_uptime_seconds', {}, process.uptime());
  }
}

function writeControl(text: TextFormat, metrics: ControlMetrics): void {
  text.metric('cay_sandboxes', 'gauge', 'Sandboxes by state.');
  for (const [state, count] of Object.entries(metrics.sandboxes))
    text.sample('cay_sandboxes', { state }, count);
  text.metric('cay_pressure_used_ratio', 'gauge', 'Share in use of memory, disk and process numbers.');
  text.metric('cay_pressure_free', 'gauge', 'What is left of them, in bytes or process numbers.');
  text.metric('cay_pressure_level', 'gauge', 'How short they are: 0 ok, 1 warn, 2 critical.');
  for (const [resource, { share, free, level }] of Object.entries(metrics.pressure)) {
    text.sample('cay_pressure_used_ratio', { resource }, share);
    text.sample('cay_pressure_free', { resource }, free);
    text.sample('cay_pressure_level', { resource }, LEVELS[level]);
  }
  if (metrics.pool) {
    text.metric('cay_pool_sandboxes', 'gauge', 'Sandboxes that are kept ready: how many are, and should be.');
    text.sample('cay_pool_sandboxes', { kind: 'ready' }, metrics.pool.ready);
    text.sample('cay_pool_sandboxes', { kind: 'wanted' }, metrics.pool.wanted);
  }
  text.metric('cay_sandbox_create_seconds', 'histogram', 'How long creates took that succeeded.');
  text.histogram('cay_sandbox_create_seconds', {}, metrics.creates);
  text.metric('cay_command_start_seconds', 'histogram', 'How long commands took until they ran.');
  text.histogram('cay_command_start_seconds', {}, metrics.commandStarts);
  text.metric('cay_quota_used', 'gauge', 'What projects take of quotas that have a limit.');
  text.metric('cay_quota_limit', 'gauge', 'The limits of these quotas.');
  for (const { project, quota, used, limit } of metrics.quotas) {
    text.sample('cay_quota_used', { project, quota }, used);
    text.sample('cay_quota_limit', { project, quota }, limit);
  }
  const { lagSeconds, ...states } = metrics.webhooks;
  text.metric('cay_webhooks', 'gauge', 'Webhooks by state.');
  for (const [state, count] of Object.entries(states)) text.sample('cay_webhooks', { state }, count);
  text.metric(
    'cay_network_attempts_total',
    'counter',
    'Attempts of sandboxes to reach something, that ended.',
  );
  for (const [verdict, count] of Object.entries(metrics.network.attempts))
    text.sample('cay_network_attempts_total', { verdict }, count);
  text.metric(
    'cay_network_over_quota_total',
    'counter',
    'Connections that were refused or cut because their project is at its quota.',
  );
  text.sample('cay_network_over_quota_total', {}, metrics.network.overQuota);
  text.metric('cay_network_bytes_total', 'counter', 'Bytes that these carried, as sandboxes see them.');
  for (const [direction, count] of Object.entries(metrics.network.bytes))
    text.sample('cay_network_bytes_total', { direction }, count);
  text.metric('cay_webhook_lag_seconds', 'gauge', 'Age of the oldest event that waits for its delivery.');
  text.sample('cay_webhook_lag_seconds', {}, lagSeconds);
}

const LEVELS = { ok: 0, warn: 1, critical: 2 } as const;

interface TextFormat {
  metric(name: string, type: 'gauge' | 'counter' | 'histogram', help: string): void;
  sample(name: string, labels: Labels, value: number): void;
  histogram(name: string, labels: Labels, snapshot: HistogramSnapshot): void;
  end(): string;
}

/** Samples may come in any order: each goes below the head of its metric. */
function textFormat(): TextFormat {
  const metrics = new Map<string, string[]>();
  const add = (metric: string, name: string, labels: Labels, value: number) => {
    const pairs = Object.entries(labels).map(([key, label]) => `${key}="${label}"`);
    metrics.get(metric)!.push(`${name}${pairs.length > 0 ? `{${pairs.join(',')}}` : ''} ${value}`);
  };
  return {
    metric: (name, type, help) =>
      void metrics.set(name, [`# HELP ${name} ${help}`, `# TYPE ${name} ${type}`]),
    sample: (name, labels, value) => add(name, name, labels, value),
    histogram(name, labels, { buckets, sum, count }) {
      for (const { bound, count: below } of buckets)
        add(name, `${name}_bucket`, { ...labels, le: bound }, below);
      add(name, `${name}_bucket`, { ...labels, le: '+Inf' }, count);
      add(name, `${name}_sum`, labels, sum);
      add(name, `${name}_count`, labels, count);
    },
    end: () => `${[...metrics.values()].flat().join('\n')}\n`,
  };
}
