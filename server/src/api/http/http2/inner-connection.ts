import { Duplex } from 'node:stream';
import { keep } from '../../../lib/lent-memory.ts';

/**
 * Two ends of a connection inside the process: what is written to one is read from the other, at the speed of
 * the reader, and what closes one closes the other. Unlike Node's `duplexPair` it hands over several pieces
 * at a time: HTTP/1 writes three for each chunk of a body.
 */
export function innerConnection(): [Duplex, Duplex] {
  const [near, far] = [new End(), new End()];
  near.peer = far;
  far.peer = near;
  return [near, far];
}

class End extends Duplex {
  peer!: End;
  /** Called when this end wants more. */
  #wanted: (() => void) | undefined;

  constructor() {
    super({ allowHalfOpen: true, highWaterMark: 64 * 1024 });
  }

  override _read(): void {
    const wanted = this.#wanted;
    this.#wanted = undefined;
    wanted?.();
  }

  override _write(chunk: Buffer, _encoding: string, done: () => void): void {
    this.peer.#take([{ chunk }], done);
  }

  override _writev(chunks: { chunk: Buffer }[], done: () => void): void {
    this.peer.#take(chunks, done);
  }

  override _final(done: () => void): void {
    if (!this.peer.destroyed) this.peer.push(null);
    done();
  }

  override _destroy(error: Error | null, done: (error: Error | null) => void): void {
    const wanted = this.#wanted;
    this.#wanted = undefined;
    wanted?.();
    done(error);
    this.peer.destroy();
  }

  #take(chunks: { chunk: Buffer }[], done: () => void): void {
    if (this.destroyed) return done();
    let room = true;
    for (const { chunk } of chunks) {
      // Its writer is called back while the reader still has it.
      keep(chunk);
      room = this.push(chunk);
    }
    if (room) done();
    else this.#wanted = done;
  }
}
