/**
 * A stream that the guest has opened, as a Node stream.
 *
 * Bytes are views of what the transport read, and of what was written: none is copied. Reading grants credit
 * as it goes, so a slow reader holds one chunk here and the window of the stream behind it. An error is
 * never unhandled: the owner of the duplex may listen for it or not.
 */
import { CayError } from '@cay/sdk/protocol';
import { Duplex } from 'node:stream';
import type { GuestStream } from './stream.ts';
import { violation } from './violation.ts';

const BUFFERED_BYTES = 65_536;
const LINGER_MS = 2000;

export class CarriedDuplex extends Duplex {
  readonly #stream: GuestStream;
  /** Called with the number of bytes that have come, before anything is done with them. */
  onArrived: ((bytes: number) => void) | undefined;
  #wanted = false;

  constructor(stream: GuestStream) {
    super({
      allowHalfOpen: true,
      decodeStrings: true,
      readableHighWaterMark: BUFFERED_BYTES,
      // A piece that is sent at once does not stop its sender.
      writableHighWaterMark: 2 * BUFFERED_BYTES,
    });
    this.#stream = stream;
    stream.markLongLived();
    stream.onArrival = (bytes) => {
      if (bytes > 0) this.onArrived?.(bytes);
      if (!this.destroyed) this.#pull();
    };
    this.on('error', () => {});
  }

  /** Bytes that are kept for either side. */
  get heldBytes(): number {
    return this.#stream.queuedBytes + this.readableLength + this.writableLength;
  }

  override _read(): void {
    this.#wanted = true;
    this.#pull();
  }

  override _write(chunk: Buffer, _encoding: string, done: (error?: Error | null) => void): void {
    const sent = this.#stream.write(chunk);
    if (sent === undefined) done();
    else sent.then(() => done(), done);
  }

  override _final(done: () => void): void {
    this.#stream.end();
    done();
  }

  override _destroy(error: Error | null, done: (error?: Error | null) => void): void {
    this.#stream.onArrival = undefined;
    // A reset makes the guest drop what the program has not read yet.
    if (!this.#stream.over && error === null && this.writableFinished) this.#linger();
    else if (!this.#stream.over) {
      const why = error instanceof CayError ? error : new CayError('cancelled', 'The connection was closed');
      this.#stream.reset(why);
    }
    done(error);
  }

  /** All was sent. What still comes is dropped, until the guest ends the stream too, for a bounded time. */
  #linger(): void {
    const stream = this.#stream;
    const reset = () => {
      stream.onArrival = undefined;
      if (!stream.over) stream.reset(new CayError('cancelled', 'The connection was closed'));
    };
    const timer = setTimeout(reset, LINGER_MS).unref();
    const drop = () => {
      while (!stream.failure && stream.takeNow()) stream.grantTaken();
      if (!stream.failure && !stream.hasEnded) return;
      clearTimeout(timer);
      reset();
    };
    stream.onArrival = drop;
    drop();
  }

  #pull(): void {
    const stream = this.#stream;
    // A guest that has reset the stream, or is gone, has also given up what it sent before.
    if (stream.failure) return void this.destroy(stream.failure);
    while (this.#wanted) {
      stream.grantTaken();
      const item = stream.takeNow();
      if (!item) break;
      if (item.message) return stream.break(violation('a message came on a carried connection'));
      this.#wanted = this.push(item.data);
    }
    if (this.#wanted && stream.drained && stream.hasEnded) {
      this.#wanted = false;
      this.push(null);
    }
  }
}
