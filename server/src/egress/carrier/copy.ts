import { ClientRequest } from 'node:http';
import { Socket } from 'node:net';
import type { Duplex } from 'node:stream';
import { giveBack } from '../../lib/lent-memory.ts';

/**
 * Copies bytes one way, at the pace of the reader and of the limits. The end of one side ends the writing of
 * the other and nothing else, so that each direction ends by itself. `spend` counts bytes and answers for how
 * long to wait; what it throws goes to `onError`.
 */
export function copy(
  from: Duplex,
  to: Duplex,
  spend: (chunk: Buffer) => number,
  onError: (error: unknown) => void,
): void {
  // Only the operating system has the bytes after a socket, and after a request, which is written to one.
  // Another stream may pass the same memory on.
  const last = to instanceof Socket || to instanceof ClientRequest;
  let full = false;
  let waiting = false;
  const resume = () => {
    if (!full && !waiting) from.resume();
  };
  from.on('data', (chunk: Buffer) => {
    let wait: number;
    try {
      wait = spend(chunk);
    } catch (error) {
      from.pause();
      onError(error);
      return;
    }
    if (!to.writable) return;
    if (!(last ? to.write(chunk, (error) => error ?? giveBack(chunk)) : to.write(chunk))) {
      full = true;
      from.pause();
      to.once('drain', () => {
        full = false;
        resume();
      });
    }
    if (wait > 0) {
      waiting = true;
      from.pause();
      setTimeout(() => {
        waiting = false;
        resume();
      }, wait).unref();
    }
  });
  const onEnd = () => {
    if (to.writable) to.end();
  };
  if (from.readableEnded) onEnd();
  else from.once('end', onEnd).resume();
}
