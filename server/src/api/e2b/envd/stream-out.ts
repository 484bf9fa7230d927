import type { ServerResponse } from 'node:http';
import { once } from 'node:events';
import { cutOff } from '../../http/stream-answer.ts';
import type { Codec } from './codec.ts';
import { encodeEnd, encodeEnvelope } from './envelope.ts';

/** A stream of messages to a client, with backpressure. */
export interface StreamOut {
  /** True after the client disconnected. Further messages are dropped. */
  readonly gone: boolean;
  /** Resolves when there is room for more. */
  send(message: unknown): Promise<void>;
  /** What stands for bytes in a message. */
  bytes(data: Uint8Array): unknown;
  /**
   * Resets the connection. Clients take that for a sandbox that is gone, and an orderly close for a network
   * that failed.
   */
  cut(): void;
  end(error?: { code: number | string; message: string }): void;
}

const QUIET_MS = 90_000;

export interface StreamOutOptions {
  codec: Codec;
  /** Of the call. */
  path: string;
  /** Sent if nothing else was for `everyMs`. */
  keepalive: unknown;
  everyMs: number;
}

export function streamOut(response: ServerResponse, options: StreamOutOptions): StreamOut {
  const { codec, path } = options;
  const sign = encodeEnvelope(codec.encode(path, options.keepalive));
  const timer = setInterval(() => response.write(sign), options.everyMs);
  response.once('close', () => clearInterval(timer));
  response.writeHead(200, {
    'Content-Type': codec.streaming,
    'Cache-Control': 'no-store',
    'X-Accel-Buffering': 'no',
  });
  return {
    get gone() {
      return response.destroyed || response.writableEnded;
    },
    bytes: codec.bytes,
    async send(message) {
      if (response.destroyed) return;
      timer.refresh();
      if (response.write(encodeEnvelope(codec.encode(path, message))) || response.destroyed) return;
      const drained = new AbortController();
      try {
        await Promise.race([once(response, 'drain', drained), once(response, 'close', drained)]);
      } finally {
        drained.abort();
      }
    },
    cut() {
      cutOff(response);
    },
    end(error) {
      clearInterval(timer);
      if (!response.destroyed) response.end(encodeEnd(error));
    },
  };
}

/** The keepalive interval that the client asks for. */
export function keepaliveMs(headers: NodeJS.Dict<string | string[]>): number {
  const seconds = Number(headers['keepalive-ping-interval']);
  return seconds >= 1 && seconds <= 3600 ? seconds * 1000 : QUIET_MS;
}

/** The timeout of the client, if it sends one. */
export function deadlineMs(headers: NodeJS.Dict<string | string[]>): number | undefined {
  const given = headers['connect-timeout-ms'];
  return typeof given === 'string' && /^\d{1,10}$/.test(given) && Number(given) > 0
    ? Math.min(Number(given), 2_147_483_647)
    : undefined;
}
