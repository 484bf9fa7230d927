import { openLoopDelay } from '../../lib/loop-delay.ts';

/** Counts what the server does. Labels are of a small fixed set: route names, status classes, states. */
export interface Metrics {
  request(route: string, status: number, seconds: number): void;
  /** A WebSocket, or whatever else an upgrade led to. */
  socketOpened(route: string): void;
  socketClosed(route: string, bytes: { received: number; sent: number }): void;
  /** A failure that nothing had caught but the process itself. */
  unhandled(): void;
  /** In Prometheus' text format. */
  text(): string;
  close(): void;
}

const BUCKETS = [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 60];

/** Of the event loop's delay; what is measured includes it. */
const RESOLUTION_MS = 20;

interface Series {
  byClass: Map<string, number>;
  buckets: number[];
  sum: number;
  count: number;
}

export function openMetrics(options: { version: string; sandboxes(): Record<string, number> }): Metrics {
  const routes = new Map<string, Series>();
  const sockets = new Map<string, { open: number; total: number; received: number; sent: number }>();
  let unhandled = 0;
  const delay = openLoopDelay({ resolutionMs: RESOLUTION_MS });

  function seriesOf(route: string): Series {
    let series = routes.get(route);
    if (!series)
      routes.set(route, (series = { byClass: new Map(), buckets: BUCKETS.map(() => 0), sum: 0, count: 0 }));
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
      series.sum += seconds;
      series.count++;
      const bucket = BUCKETS.findIndex((bound) => seconds <= bound);
      if (bucket >= 0) series.buckets[bucket]!++;
    },
    text() {
      const lines: string[] = [];
      const metric = (name: string, type: string, help: string) =>
        lines.push(`# HELP ${name} ${help}`, `# TYPE ${name} ${type}`);
      metric('cay_build_info', 'gauge', 'The version that runs.');
      lines.push(`cay_build_info{version="${options.version}"} 1`);
      metric('cay_http_requests_total', 'counter', 'Requests by route and class of status.');
      for (const [route, { byClass }] of routes) {
        for (const [kind, count] of byClass)
          lines.push(`cay_http_requests_total{route="${route}",status="${kind}"} ${count}`);
      }
      metric('cay_http_request_duration_seconds', 'histogram', 'How long requests took, streams included.');
      for (const [route, { buckets, sum, count }] of routes) {
        let below = 0;
        BUCKETS.forEach((bound, index) => {
          below += buckets[index]!;
          lines.push(`cay_http_request_duration_seconds_bucket{route="${route}",le="${bound}"} ${below}`);
        });
        lines.push(`cay_http_request_duration_seconds_bucket{route="${route}",le="+Inf"} ${count}`);
        lines.push(
          `cay_http_request_duration_seconds_sum{route="${route}"} ${sum}`,
          `cay_http_request_duration_seconds_count{route="${route}"} ${count}`,
        );
      }
      metric('cay_websockets_open', 'gauge', 'WebSockets that are open now.');
      for (const [route, { open }] of sockets) lines.push(`cay_websockets_open{route="${route}"} ${open}`);
      metric('cay_websockets_total', 'counter', 'WebSockets that were opened.');
      for (const [route, { total }] of sockets) lines.push(`cay_websockets_total{route="${route}"} ${total}`);
      metric('cay_websocket_bytes_total', 'counter', 'Bytes of WebSockets that were closed.');
      for (const [route, { received, sent }] of sockets) {
        lines.push(
          `cay_websocket_bytes_total{route="${route}",direction="received"} ${received}`,
          `cay_websocket_bytes_total{route="${route}",direction="sent"} ${sent}`,
        );
      }
      metric(
        'cay_unhandled_failures_total',
        'counter',
        'Failures that nothing caught. Each is a fault of the server.',
      );
      lines.push(`cay_unhandled_failures_total ${unhandled}`);
      metric('cay_sandboxes', 'gauge', 'Sandboxes by state.');
      for (const [state, count] of Object.entries(options.sandboxes()))
        lines.push(`cay_sandboxes{state="${state}"} ${count}`);
      metric('cay_event_loop_delay_seconds', 'gauge', 'How late timers were in the last minute or so.');
      for (const quantile of [50, 99])
        lines.push(
          `cay_event_loop_delay_seconds{quantile="${quantile / 100}"} ${delay.delayMs(quantile) / 1000}`,
        );
      metric('process_resident_memory_bytes', 'gauge', 'Memory that the server holds.');
      lines.push(`process_resident_memory_bytes ${process.memoryUsage.rss()}`);
      metric('process_heap_bytes', 'gauge', 'Heap in use.');
      lines.push(`process_heap_bytes ${process.memoryUsage().heapUsed}`);
      metric('process_uptime_seconds', 'gauge', 'How long the server runs.');
      lines.push(`process_uptime_seconds ${process.uptime()}`);
      return `${lines.join('\n')}\n`;
    },
    close: () => delay.close(),
  };
}
