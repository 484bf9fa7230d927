import { Duplex } from 'node:stream';
import type { Connection } from './guest.ts';

/**
 * A connection to a port in a sandbox as a Node stream, for HTTP. Both sides have backpressure. An exception
 * of a reader ends the stream and nothing else.
 */
export function connectionStream(connection: Connection): Duplex {
  const readable = connection.readable[Symbol.asyncIterator]();
  const stream = new Duplex({
    allowHalfOpen: true,
    read() {
      readable
        .next()
        .then(({ done, value }) => this.push(done ? null : value))
        .catch((error: Error) => this.destroy(error));
    },
    write(chunk: Buffer, _encoding, callback) {
      after(connection.write(chunk), callback);
    },
    final(callback) {
      after(connection.end(), callback);
    },
    destroy(error, callback) {
      const closed = () => callback(error);
      Promise.resolve(connection[Symbol.asyncDispose]()).then(closed, closed).catch(ended);
    },
  });

  function after(work: Promise<void>, callback: (error?: Error | null) => void): void {
    work.then(() => callback(), callback).catch((error: Error) => stream.destroy(error));
  }

  // Readers learn of the end by "close". Between two readers no listener for errors exists.
  return stream.on('error', ended);
}

const ended = (): void => {};
