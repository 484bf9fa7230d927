import { Duplex } from 'node:stream';
import type { Connection } from '../../guest/guest.ts';

/**
 * A connection into a sandbox as a Node stream, which HTTP speaks over. Each side waits for the other. What a
 * reader of the stream throws on what came from inside ends the stream and nothing else.
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

  // Whoever reads learns of the end by "close"; between two readers there is nobody else to hear of an error.
  return stream.on('error', ended);
}

const ended = (): void => {};
