import type { Writable } from 'node:stream';
import { lend } from './lent-memory.ts';

/**
 * Lends what is written to a stream from now on: for a stream whose one writer keeps nothing, such as TLS
 * over it.
 */
export function lendWrites(stream: Writable): void {
  const write = stream.write.bind(stream) as (chunk: unknown, ...rest: unknown[]) => boolean;
  stream.write = (chunk: unknown, ...rest: unknown[]) => {
    if (chunk instanceof Uint8Array) lend(chunk);
    return write(chunk, ...rest);
  };
}
