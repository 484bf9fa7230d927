import type { IncomingMessage } from 'node:http';
import type { Socket } from 'node:net';
import type { Duplex } from 'node:stream';
import type { Metrics } from './metrics.ts';
import { newTrace, type Trace } from './trace.ts';
import type { RequestSpans } from './tracing/request-spans.ts';

/** A request to change the protocol of its connection, and its outcome. */
export interface Upgrade {
  readonly trace: Trace;
  accepted(): void;
  refused(status: number): void;
}

/**
 * Counts and traces upgrades until their connections end, and then calls `onEnd`. One listener does both,
 * because sockets have many listeners.
 */
export function upgradeWatch(
  metrics: Metrics,
  spans: RequestSpans | undefined,
  onEnd: (socket: Duplex) => void,
) {
  return (request: IncomingMessage, socket: Duplex): Upgrade => {
    const trace = newTrace(request);
    if (spans) trace.span = spans.begin(request);
    // The client disconnected before it got an answer.
    let status = 499;
    let before: { read: number; written: number } | undefined;
    socket.once('close', () => {
      onEnd(socket);
      spans?.end(request, trace, status);
      if (before) {
        const { read, written } = bytesOf(socket);
        metrics.socketClosed(trace.route, { received: read - before.read, sent: written - before.written });
      } else metrics.request(trace.route, status, (performance.now() - trace.startedAt) / 1000);
    });
    return {
      trace,
      accepted() {
        if (before) return;
        status = 101;
        before = bytesOf(socket);
        metrics.socketOpened(trace.route);
      },
      refused(code) {
        status = code;
      },
    };
  };
}

/** Node's server gives a socket, encrypted or not. */
function bytesOf(socket: Duplex): { read: number; written: number } {
  const { bytesRead = 0, bytesWritten = 0 } = socket as Partial<Socket>;
  return { read: bytesRead, written: bytesWritten };
}
