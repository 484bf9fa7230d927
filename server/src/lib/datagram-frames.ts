/**
 * Datagrams in a stream of bytes: each is its length in two bytes, the higher first, and then its bytes.
 */
import { Buffer } from 'node:buffer';

/** Longer ones are not carried. */
export const MAX_DATAGRAM = 16_384;
const HEAD = 2;

export function frameDatagram(datagram: Uint8Array): Buffer {
  const framed = Buffer.allocUnsafe(HEAD + datagram.length);
  framed.writeUInt16BE(datagram.length, 0);
  framed.set(datagram, HEAD);
  return framed;
}

/** Takes the stream in whatever pieces it comes. It keeps the beginning of one datagram at most. */
export class DatagramReader {
  #rest: Buffer = Buffer.alloc(0);

  /**
   * The datagrams that are whole now. Throws `RangeError` for one that is too long; then it must not be used
   * again.
   */
  push(chunk: Buffer): Buffer[] {
    const bytes = this.#rest.length === 0 ? chunk : Buffer.concat([this.#rest, chunk]);
    const whole: Buffer[] = [];
    let at = 0;
    while (bytes.length - at >= HEAD) {
      const length = bytes.readUInt16BE(at);
      if (length > MAX_DATAGRAM)
        throw new RangeError(`a datagram has ${length} bytes, the most is ${MAX_DATAGRAM}`);
      if (bytes.length - at - HEAD < length) break;
      whole.push(bytes.subarray(at + HEAD, at + HEAD + length));
      at += HEAD + length;
    }
    // A copy, so that a few bytes do not keep what they were read with.
    this.#rest = Buffer.from(bytes.subarray(at));
    return whole;
  }
}
