/**
 * HTTP/2 on the port of an HTTP/1 server: over TLS by ALPN, without TLS by prior knowledge. Each stream
 * becomes a connection of the HTTP/1 server that never leaves the process, so that every route, proxy and
 * limit serves both versions with the same code.
 */
import type { Server } from 'node:http';
import type { Socket } from 'node:net';
import type { Duplex } from 'node:stream';
import { TLSSocket } from 'node:tls';
import { http2Sessions } from './http2-sessions.ts';

export interface AcceptHttp2Options {
  /** How long a client may take until it has opened its first stream. */
  headersMs: number;
  /** How long a connection without streams is kept. */
  idleMs: number;
  /**
   * Counts a stream as one more connection of its address. False: there are too many. It is counted until it
   * is closed.
   */
  admit(stream: Duplex & { remoteAddress?: string | undefined }): boolean;
}

export interface AcceptedHttp2 {
  /** Takes no new streams, and ends connections that have none. */
  close(): void;
  /** Ends all connections. */
  destroy(): void;
}

const PREFACE = Buffer.from('PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n');
const KNOWN = ['h2', 'http/1.1'];

/**
 * The protocol for TLS. The client's order decides: Node's clients put HTTP/1 first, which is faster here by
 * what carrying a stream costs; browsers, which open few connections, put HTTP/2 first.
 */
export function chooseProtocol({ protocols }: { protocols: string[] }): string | undefined {
  return protocols.find((protocol) => KNOWN.includes(protocol));
}

export function acceptHttp2(server: Server, options: AcceptHttp2Options): AcceptedHttp2 {
  const event = 'setSecureContext' in server ? 'secureConnection' : 'connection';
  // The listener with which Node serves HTTP/1 is the first one, of the server's own constructor.
  const listener = server.listeners(event)[0] as (this: Server, socket: Duplex) => void;
  server.removeListener(event, listener);
  const http1 = (socket: Duplex) => listener.call(server, socket);
  const sessions = http2Sessions({ ...options, http1 });

  function peek(socket: Socket): void {
    // Such a connection is not among those that the HTTP/1 server looks after yet.
    const timer = setTimeout(() => socket.destroy(), options.headersMs);
    const fail = () => socket.destroy();
    socket.once('error', fail);
    const look = () => {
      const chunk = socket.read() as Buffer | null;
      if (chunk === null && !socket.readableEnded && !socket.destroyed) return;
      clearTimeout(timer);
      socket.off('readable', look).off('error', fail).off('close', look);
      if (chunk === null) return void socket.destroy();
      // A preface in several pieces is not waited for. No client sends it so.
      const isHttp2 = chunk.subarray(0, PREFACE.length).equals(PREFACE);
      socket.unshift(chunk);
      if (isHttp2) sessions.take(socket);
      else http1(socket);
    };
    socket.on('readable', look).once('close', look);
  }

  server.on(event, (socket: Socket) => {
    if (!(socket instanceof TLSSocket)) peek(socket);
    else if (socket.alpnProtocol === 'h2') sessions.take(socket);
    else http1(socket);
  });
  return sessions;
}
