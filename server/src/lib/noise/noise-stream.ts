import { connect, type Socket } from 'node:net';
import { Duplex } from 'node:stream';
import { HANDSHAKE_BYTES, MAX_PLAIN_BYTES, noiseHandshake, type NoiseChannel } from './noise.ts';

export interface NoiseDial {
  host: string;
  port: number;
  /** The 32 bytes that both ends know. */
  key: Uint8Array;
  prologue: Uint8Array;
  /** Timeout of the handshake. */
  timeoutMs: number;
  signal?: AbortSignal;
}

const LENGTH_BYTES = 2;

/**
 * A byte stream over TCP that only the two holders of the key can read and write. Each message has a length
 * of two bytes before it. Resolves when the other end has answered the handshake and was sent an empty
 * message, which proves that the first one was not a replay. If it rejects, nothing stays open.
 */
export async function dialNoise({
  host,
  port,
  key,
  prologue,
  timeoutMs,
  signal,
}: NoiseDial): Promise<Duplex> {
  signal?.throwIfAborted();
  const socket = connect({ host, port, noDelay: true, keepAlive: true, keepAliveInitialDelay: 15_000 });
  const { promise, resolve, reject } = Promise.withResolvers<Duplex>();
  const handshake = noiseHandshake({ initiator: true, key, prologue });
  const timer = setTimeout(
    () => reject(new Error(`"${host}:${port}" has not answered within ${timeoutMs} ms`)),
    timeoutMs,
  );
  const aborted = () => reject(signal?.reason as Error);
  const ended = () => reject(new Error(`"${host}:${port}" has hung up`));
  let received: Buffer = Buffer.alloc(0);

  function answered(chunk: Buffer): void {
    received = Buffer.concat([received, chunk]);
    const isForeign = received.length >= LENGTH_BYTES && received.readUInt16BE(0) !== HANDSHAKE_BYTES;
    if (received.length < LENGTH_BYTES + HANDSHAKE_BYTES && !isForeign) return;
    socket.pause();
    try {
      if (isForeign) throw new Error('A handshake message has not its size');
      handshake.read(received.subarray(LENGTH_BYTES, LENGTH_BYTES + HANDSHAKE_BYTES));
    } catch (cause) {
      return reject(new Error(`"${host}:${port}" does not have the key`, { cause }));
    }
    const channel = handshake.split();
    write(socket, channel.seal(Buffer.alloc(0)));
    resolve(noiseStream(socket, channel, received.subarray(LENGTH_BYTES + HANDSHAKE_BYTES)));
  }

  signal?.addEventListener('abort', aborted, { once: true });
  socket.once('connect', () => write(socket, handshake.write()));
  socket.on('error', reject).on('close', ended).on('data', answered);
  try {
    return await promise;
  } catch (error) {
    socket.destroy();
    throw error;
  } finally {
    clearTimeout(timer);
    signal?.removeEventListener('abort', aborted);
    socket.off('close', ended).off('data', answered);
  }
}

/**
 * The encrypted bytes of a socket. `received` has arrived already. A message that the other end did not
 * encrypt destroys both.
 */
export function noiseStream(
  socket: Socket,
  channel: NoiseChannel,
  received: Buffer = Buffer.alloc(0),
): Duplex {
  let hasRoom = true;
  const stream = new Duplex({
    write(chunk: Buffer, _encoding, done) {
      send([chunk], done);
    },
    writev(chunks, done) {
      send(
        chunks.map(({ chunk }) => chunk as Buffer),
        done,
      );
    },
    final(done) {
      socket.end(done);
    },
    read() {
      socket.resume();
    },
    destroy(error, done) {
      socket.destroy();
      done(error);
    },
  });

  function send(chunks: Buffer[], done: (error?: Error | null) => void): void {
    const plain = chunks.length === 1 ? chunks[0]! : Buffer.concat(chunks);
    socket.cork();
    for (let from = 0, to = 0; to < plain.length || to === 0; from = to) {
      to = from + MAX_PLAIN_BYTES;
      write(socket, channel.seal(plain.subarray(from, to)), to < plain.length ? undefined : done);
    }
    socket.uncork();
  }

  /** The rest of the bytes after all complete messages were decrypted. */
  function opened(bytes: Buffer): Buffer {
    let from = 0;
    for (let to = endOf(bytes, from); to <= bytes.length; to = endOf(bytes, from)) {
      const plain = channel.open(bytes.subarray(from + LENGTH_BYTES, to));
      // An empty message carries nothing, but a flood of them could keep the server busy.
      if (plain.length === 0) throw new Error('A message is empty');
      hasRoom = stream.push(plain);
      from = to;
    }
    return bytes.subarray(from);
  }

  function take(chunk: Buffer): void {
    hasRoom = true;
    try {
      // Copies only what belongs to an incomplete message.
      const begun = received.length < LENGTH_BYTES ? chunk.length : endOf(received, 0) - received.length;
      if (received.length > 0) {
        received = opened(Buffer.concat([received, chunk.subarray(0, begun)]));
        chunk = chunk.subarray(begun);
      }
      if (chunk.length > 0) received = opened(chunk);
    } catch (cause) {
      stream.destroy(new Error('What arrived was not sealed by the other end', { cause }));
      return;
    }
    if (!hasRoom) socket.pause();
  }

  socket.on('data', take);
  socket.on('end', () => stream.push(null));
  socket.on('error', (error) => stream.destroy(error));
  socket.on('close', () => stream.destroy());
  socket.pause();
  if (received.length > 0) take(Buffer.alloc(0));
  return stream;
}

function write(socket: Socket, message: Buffer, done?: (error?: Error | null) => void): void {
  const length = Buffer.allocUnsafe(LENGTH_BYTES);
  length.writeUInt16BE(message.length);
  socket.cork();
  socket.write(length);
  socket.write(message, done);
  socket.uncork();
}

/** The end of the message that starts there; beyond the bytes if it is incomplete. */
function endOf(bytes: Buffer, from: number): number {
  if (bytes.length - from < LENGTH_BYTES) return Infinity;
  return from + LENGTH_BYTES + bytes.readUInt16BE(from);
}
