/** The two directions of a WebSocket, both with backpressure. */
import type { RawData, WebSocket } from 'ws';
import { wireError } from '../../http/error-answer.ts';
import { ERRORS } from '@cay/sdk/protocol';

const HIGH_BYTES = 1024 * 1024;
/** Overhead of a message, which also counts for an empty one. */
const MESSAGE_BYTES = 256;
/**
 * Answers to pings that may wait for a client which does not read. Further pings are not answered, as the
 * protocol allows.
 */
const MOST_PONGS = 16;

/** Messages that wait to be sent. */
const unsent = new WeakMap<WebSocket, number>();

/** Sends a message, and waits if much is buffered for the client. */
export async function send(socket: WebSocket, data: string | Uint8Array): Promise<void> {
  if (socket.readyState !== socket.OPEN) return;
  const count = unsent.get(socket) ?? 0;
  if (socket.bufferedAmount + count * MESSAGE_BYTES < HIGH_BYTES) {
    unsent.set(socket, count + 1);
    socket.send(data, () => unsent.set(socket, unsent.get(socket)! - 1));
    return;
  }
  // The callback is called when this message and all before it were sent.
  await new Promise<void>((resolve) => {
    socket.once('close', resolve);
    socket.send(data, () => {
      socket.off('close', resolve);
      resolve();
    });
  });
}

/** Handles messages one after the other. Stops reading from the client while many messages wait. */
export function receive(
  socket: WebSocket,
  deal: (data: Buffer, binary: boolean) => Promise<void>,
  onError: (error: unknown) => void,
): void {
  let tail = Promise.resolve();
  let waiting = 0;
  socket.on('message', (raw: RawData, binary: boolean) => {
    // With Node's default binary type a message is always one Buffer.
    const data = raw as Buffer;
    const cost = data.length + MESSAGE_BYTES;
    waiting += cost;
    if (waiting > HIGH_BYTES) socket.pause();
    tail = tail
      .then(() => deal(data, binary))
      .catch(onError)
      .then(() => {
        waiting -= cost;
        if (waiting <= HIGH_BYTES && socket.isPaused) socket.resume();
      });
  });
}

/** Answers pings, except of a client that does not read the answers. */
export function answerPings(socket: WebSocket): void {
  let waiting = 0;
  socket.on('ping', (data: Buffer) => {
    if (socket.readyState !== socket.OPEN || waiting >= MOST_PONGS) return;
    waiting++;
    socket.pong(data, false, () => waiting--);
  });
}

/** Sends the error, and closes with 4000 and the HTTP status, or with 1011 if the server failed. */
export function closeWith(socket: WebSocket, error: unknown): void {
  const wire = wireError(error);
  if (socket.readyState !== socket.OPEN) return;
  socket.send(JSON.stringify({ type: 'error', error: wire }), () => {});
  socket.close(wire.code === 'internal' ? 1011 : 4000 + ERRORS[wire.code].status, wire.code);
}

/** Aborts when the client disconnects. */
export function signalOf(socket: WebSocket): AbortSignal {
  const controller = new AbortController();
  if (socket.readyState === socket.CLOSED) controller.abort();
  socket.once('close', () => controller.abort());
  return controller.signal;
}
