import { open, rename, rm, type FileHandle } from 'node:fs/promises';
import { errnoOf } from '@cay/sdk/system-error';
import { giveBack } from '../../lib/lent-memory.ts';
import { pathError } from './path-error.ts';

interface WriteOptions {
  mode: number;
  /** Resolves when it is on the disk. */
  sync?: boolean;
}

/** Writes under another name until all of it is there, so that a failure leaves the file that was there. */
export async function writeWhole(
  path: string,
  content: AsyncIterable<Uint8Array>,
  { mode, sync = false }: WriteOptions,
): Promise<void> {
  const temporary = `${path}.cay-${process.pid}`;
  try {
    const file = await open(temporary, 'wx', mode);
    try {
      await writeAll(file, content);
      await file.chmod(mode);
      if (sync) await file.datasync();
    } finally {
      await file.close();
    }
    await rename(temporary, path);
  } catch (error) {
    await rm(temporary, { force: true });
    // A failure without a code of the system is the source's, not the file's.
    throw errnoOf(error) === undefined ? error : pathError('write', path, error);
  }
}

/** Chunks of a network are small: several are written at once. */
const WRITE_BYTES = 1024 * 1024;

async function writeAll(file: FileHandle, content: AsyncIterable<Uint8Array>): Promise<void> {
  let waiting: Uint8Array[] = [];
  let bytes = 0;
  const flush = async () => {
    const { bytesWritten } = await file.writev(waiting);
    // A disk that is full takes a part of it first; the rest then fails with the reason.
    if (bytesWritten < bytes) await file.writeFile(Buffer.concat(waiting).subarray(bytesWritten));
    for (const chunk of waiting) giveBack(chunk);
    waiting = [];
    bytes = 0;
  };
  for await (const chunk of content) {
    waiting.push(chunk);
    bytes += chunk.length;
    if (bytes >= WRITE_BYTES) await flush();
  }
  if (bytes > 0) await flush();
}

/** Passes chunks on and says how many bytes have passed so far. */
export async function* counted(
  chunks: AsyncIterable<Uint8Array>,
  onProgress: (bytes: number) => void,
): AsyncGenerator<Uint8Array, void, undefined> {
  let bytes = 0;
  for await (const chunk of chunks) {
    onProgress((bytes += chunk.length));
    yield chunk;
  }
}
