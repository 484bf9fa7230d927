import { createHash } from 'node:crypto';
import { partBytes } from './part-size.ts';

/** The ETag that most servers give to an object that `upload.ts` has put with a known size. */
export async function expectedEtag(content: AsyncIterable<Uint8Array>, sizeBytes: number): Promise<string> {
  const part = partBytes(0, sizeBytes);
  if (sizeBytes < part) {
    const hash = createHash('md5');
    for await (const chunk of content) hash.update(chunk);
    return hash.digest('hex');
  }
  const parts = createHash('md5');
  let hash = createHash('md5');
  let filled = 0;
  let count = 0;
  const end = () => {
    parts.update(hash.digest());
    hash = createHash('md5');
    filled = 0;
    count++;
  };
  for await (const chunk of content) {
    for (let at = 0; at < chunk.length;) {
      const piece = chunk.subarray(at, at + part - filled);
      hash.update(piece);
      filled += piece.length;
      at += piece.length;
      if (filled === part) end();
    }
  }
  if (filled > 0) end();
  return `${parts.digest('hex')}-${count}`;
}
