/** What clients of HTTP APIs that we speak ourselves have in common. */
import type { ClientRequest, IncomingMessage } from 'node:http';
import type { Duplex } from 'node:stream';
import { feed } from './feed.ts';

/** Several values are several pairs. */
export type Query = Record<string, string | number | boolean | readonly string[] | undefined>;

export interface Answered {
  answer: IncomingMessage;
  /** The connection itself, if the server handed it over. */
  socket?: Duplex;
}

/**
 * Sends the body, at once or as it comes. Resolves with the head of the answer, whatever its status; rejects
 * with what went wrong. If the source of a body fails, the request is aborted and that failure is the reason.
 */
export function answerTo(
  request: ClientRequest,
  content?: Uint8Array | AsyncIterable<Uint8Array>,
): Promise<Answered> {
  const { promise, resolve, reject } = Promise.withResolvers<Answered>();
  request.on('response', (answer) => resolve({ answer }));
  request.on('upgrade', (answer, socket, head) => {
    if (head.length > 0) socket.unshift(head);
    resolve({ answer, socket });
  });
  if (content === undefined || content instanceof Uint8Array) {
    request.on('error', reject);
    request.end(content);
    return promise;
  }
  // A server may answer before it has read everything; then it has closed the connection, and its answer
  // counts.
  feed(content, request).catch(reject);
  return promise;
}

/** With its question mark; nothing for no query. */
export function queryText(query: Query = {}): string {
  const pairs = Object.entries(query).flatMap(([name, value]) =>
    value === undefined ? [] : [value].flat().map((each): [string, string] => [name, String(each)]),
  );
  return pairs.length === 0 ? '' : `?${new URLSearchParams(pairs).toString()}`;
}

export function isSuccess({ statusCode = 0 }: IncomingMessage): boolean {
  return statusCode < 400;
}

/** Aborts with the caller's signal, if there is one, or after a time. */
export function signalWithin(ms: number, signal?: AbortSignal): AbortSignal {
  const timeout = AbortSignal.timeout(ms);
  return signal ? AbortSignal.any([signal, timeout]) : timeout;
}
