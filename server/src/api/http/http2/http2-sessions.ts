/** Connections of HTTP/2, and what one of them may do. */
import { constants, createServer, type ServerHttp2Session } from 'node:http2';
import type { Socket } from 'node:net';
import type { Duplex } from 'node:stream';
import { carryStream } from './carry-stream.ts';
import { isFlood, newTraffic } from './traffic.ts';
import type { AcceptHttp2Options, AcceptedHttp2 } from './accept-http2.ts';

export interface Http2Sessions extends AcceptedHttp2 {
  /** The preface of the client has not been read yet. */
  take(socket: Socket): void;
}

export interface Http2SessionsOptions extends AcceptHttp2Options {
  /** Serves one connection of HTTP/1. */
  http1(connection: Duplex): void;
}

const MOST_STREAMS = 100;
/** As many as an HTTP/1 request may have, with the four that stand for its first line. */
const MOST_HEADERS = 104;
const HEADER_BYTES = 16 * 1024;
/** What one stream may send before it is read. */
const WINDOW_BYTES = 128 * 1024;
const CHECK_MS = 250;
/** Pings and settings that one connection may send, in all and for each second. */
const SIGNALS = { burst: 100, perSecond: 5 };

export function http2Sessions(options: Http2SessionsOptions): Http2Sessions {
  const open = new Set<ServerHttp2Session>();
  const server = createServer({
    settings: {
      enablePush: false,
      maxConcurrentStreams: MOST_STREAMS,
      maxHeaderListSize: HEADER_BYTES,
      initialWindowSize: WINDOW_BYTES,
    },
    maxHeaderListPairs: MOST_HEADERS,
    maxSettings: 16,
    // In megabytes: what the library holds for one connection beside the windows of its streams.
    maxSessionMemory: 4,
    // A client that opens streams and resets them is cut off. Both are what the library does by itself.
    streamResetBurst: 1000,
    streamResetRate: 33,
  });
  server.on('sessionError', () => {});
  server.on('session', watch);
  let closing = false;

  function watch(session: ServerHttp2Session): void {
    const { socket } = session;
    const remote = addressOf(socket);
    const traffic = newTraffic();
    let streams = 0;
    let idleSince = performance.now();
    let patienceMs = options.headersMs;
    let signals = SIGNALS.burst;
    let refilledAt = performance.now();
    open.add(session);
    session.on('error', () => {});

    const calm = () => session.destroy(undefined, constants.NGHTTP2_ENHANCE_YOUR_CALM);
    const signal = () => {
      const now = performance.now();
      signals = Math.min(SIGNALS.burst, signals + ((now - refilledAt) / 1000) * SIGNALS.perSecond) - 1;
      refilledAt = now;
      if (signals < 0) calm();
    };
    session.on('ping', signal).on('remoteSettings', signal);

    const timer = setInterval(
      () => {
        if (session.destroyed) return;
        if (streams === 0 && performance.now() - idleSince > patienceMs) session.destroy();
        else if (isFlood(traffic, bytesOf(socket))) calm();
      },
      Math.min(CHECK_MS, options.headersMs / 3),
    );
    session.once('close', () => {
      clearInterval(timer);
      open.delete(session);
    });

    session.on('stream', (stream, headers) => {
      streams++;
      traffic.streams++;
      patienceMs = options.idleMs;
      stream.once('close', () => {
        if (--streams > 0) return;
        idleSince = performance.now();
        if (closing) session.close();
      });
      stream.on('error', () => {});
      carryStream(stream, headers, { ...options, remote, traffic });
    });
  }

  return {
    take(socket) {
      if (closing) return void socket.destroy();
      server.emit('connection', socket);
    },
    close() {
      closing = true;
      for (const session of open) session.close();
    },
    destroy() {
      for (const session of open) session.destroy();
    },
  };
}

/** What HTTP/1 code asks of a socket. The session hides the rest of it. */
export interface Remote {
  remoteAddress: string | undefined;
  remotePort: number | undefined;
  encrypted: boolean;
}

function addressOf(socket: ServerHttp2Session['socket']): Remote {
  const { remoteAddress, remotePort } = socket;
  return { remoteAddress, remotePort, encrypted: 'encrypted' in socket && socket.encrypted };
}

function bytesOf(socket: ServerHttp2Session['socket']): { read: number; written: number } {
  return { read: socket.bytesRead, written: socket.bytesWritten };
}
