import { Duplex } from 'node:stream';
import type { Connection } from '../../guest/guest.ts';

/** A connection into a sandbox as a Node stream, which HTTP speaks over. Each side waits for the other. */
export function connectionStream(connection: Connection): Duplex {
  const readable = connection.readable[Symbol.asyncIterator]();
  return new Duplex({
    allowHalfOpen: true,
    read() {
      readable.next().then(
        ({ done, value }) => this.push(done ? null : value),
        (error: Error) => this.destroy(error),
      );
    },
    write(chunk: Buffer, _encoding, callback) {
      connection.write(chunk).then(() => callback(), callback);
    },
    final(callback) {
      connection.end().then(() => callback(), callback);
    },
    destroy(error, callback) {
      connection[Symbol.asyncDispose]().then(
        () => callback(error),
        () => callback(error),
      );
    },
  });
}
