import { open, rename, rm } from 'node:fs/promises';

/** Under another name until it is complete, so that a failure leaves what was there. */
export async function writeWhole(
  path: string,
  content: AsyncIterable<Uint8Array>,
  mode: number,
): Promise<void> {
  const temporary = `${path}.cay-${process.pid}`;
  try {
    const file = await open(temporary, 'wx', mode);
    try {
      for await (const chunk of content) await file.writeFile(chunk);
      await file.chmod(mode);
    } finally {
      await file.close();
    }
    await rename(temporary, path);
  } catch (error) {
    await rm(temporary, { force: true });
    throw error;
  }
}

/** Passes on what it is given and says how much that was. */
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
