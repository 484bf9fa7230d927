/**
 * The content of a file in large chunks, the next of which is read while one is sent. They are lent: who has
 * sent one gives its memory back.
 */
import { Buffer } from 'node:buffer';
import { open } from 'node:fs/promises';
import { lend } from '../../lib/lent-memory.ts';

const CHUNK_BYTES = 512 * 1024;

/** Ends at the end of the file, or after `most` bytes. */
export async function* fileChunks(path: string, most = Infinity): AsyncGenerator<Buffer, void, undefined> {
  const file = await open(path, 'r');
  let at = 0;
  const read = async (): Promise<Buffer | undefined> => {
    const length = Math.min(CHUNK_BYTES, most - at);
    if (length === 0) return undefined;
    const chunk = Buffer.allocUnsafeSlow(length);
    const { bytesRead } = await file.read(chunk, 0, length, at);
    at += bytesRead;
    return bytesRead === 0 ? undefined : chunk.subarray(0, bytesRead);
  };
  let next: Promise<Buffer | undefined> | undefined;
  try {
    for (let chunk = await read(); chunk; chunk = await next) {
      next = read();
      // A failure is met when it is its turn.
      next.catch(() => {});
      lend(chunk);
      yield chunk;
    }
  } finally {
    // A file that is closed while it is read fails the read only.
    await next?.catch(() => {});
    await file.close();
  }
}
