import type { IncomingMessage } from 'node:http';

/** So much of a body that nobody wants is read, for so long, to keep the connection usable. */
const MOST_BYTES = 4 * 1024 * 1024;
const MOST_MS = 1000;

const unread = new WeakSet<IncomingMessage>();

/** The reader of this body has stopped before its end. */
export function leaveUnread(request: IncomingMessage): void {
  unread.add(request);
}

/**
 * The request is answered. What is left of a body whose reader has stopped is read to its end, or the
 * connection is closed: Node reads only bodies that nobody has begun to read, and the next request comes
 * after the body. A proxy may have that one from another client.
 */
export function readOut(request: IncomingMessage): void {
  if (!unread.has(request) || request.complete || request.destroyed) return;
  const { socket } = request;
  const timer = setTimeout(() => socket.destroy(), MOST_MS);
  let left = MOST_BYTES;
  request
    .on('data', (chunk: Buffer) => {
      left -= chunk.length;
      if (left < 0) socket.destroy();
    })
    .once('end', () => clearTimeout(timer))
    .once('close', () => clearTimeout(timer))
    .resume();
}
