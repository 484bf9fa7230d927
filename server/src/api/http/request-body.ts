import { Buffer } from 'node:buffer';
import type { IncomingMessage } from 'node:http';
import { lend } from '../../lib/lent-memory.ts';
import { leaveUnread } from './unread-bodies.ts';

/** Chunks that wait for the reader before the client is slowed down. */
const MOST_WAITING = 4;

/**
 * The body of a request, chunk by chunk as it arrives. A reader that stops leaves the connection open, so
 * that the answer with the reason can still be sent; iterating over the request itself would end the
 * connection.
 *
 * Chunks are taken from `data` events. Reading the stream would join those that wait into one, which copies
 * every byte of a large upload once more.
 */
export async function* bodyOf(request: IncomingMessage): AsyncGenerator<Buffer, void, undefined> {
  const waiting: Buffer[] = [];
  let wake: (() => void) | undefined;
  let ended = request.readableEnded;
  let failure: Error | undefined;
  const onData = (chunk: Buffer) => {
    waiting.push(chunk);
    if (waiting.length >= MOST_WAITING) request.pause();
    wake?.();
  };
  const onEnd = () => {
    ended = true;
    wake?.();
  };
  const onError = (error: Error) => {
    failure ??= error;
    wake?.();
  };
  const onClose = () => {
    if (!ended) onError(new Error('The request was closed before all of its body had arrived'));
  };
  if (request.errored) onError(request.errored);
  else if (request.destroyed) onClose();
  request.on('data', onData).on('end', onEnd).on('error', onError).on('close', onClose);
  try {
    for (;;) {
      const chunk = waiting.shift();
      if (chunk) {
        if (waiting.length === 0 && request.isPaused()) request.resume();
        yield chunk;
      } else if (failure) throw failure;
      else if (ended) return;
      else await new Promise<void>((resolve) => (wake = resolve));
    }
  } finally {
    request.pause();
    if (!ended) leaveUnread(request);
    request.off('data', onData).off('end', onEnd).off('close', onClose);
    // An error of a request that is not read any more must not end the server.
    request.off('error', onError).on('error', () => {});
  }
}

/** The same, lent: who sends the chunks to a guest, each byte at most once, frees their memory. */
export async function* lentBodyOf(request: IncomingMessage): AsyncGenerator<Buffer, void, undefined> {
  for await (const chunk of bodyOf(request)) {
    lend(chunk);
    yield chunk;
  }
}
