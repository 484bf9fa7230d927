import { appendFile, mkdtemp, rm, writeFile } from 'node:fs/promises';
import { randomBytes } from 'node:crypto';
import { join } from 'node:path';
import { afterEach, beforeEach, expect, it } from 'vitest';
import { fileChunks } from './file-chunks.ts';

let dir: string;
beforeEach(async () => void (dir = await mkdtemp('/tmp/cay-chunks-')));
afterEach(() => rm(dir, { recursive: true, force: true }));

async function all(chunks: AsyncIterable<Buffer>): Promise<Buffer> {
  const parts: Buffer[] = [];
  for await (const chunk of chunks) parts.push(chunk);
  return Buffer.concat(parts);
}

it.each([0, 1, 524_288, 524_289, 3_000_000])('reads a file of %i bytes', async (size) => {
  const content = randomBytes(size);
  await writeFile(join(dir, 'file'), content);
  expect((await all(fileChunks(join(dir, 'file')))).equals(content)).toBe(true);
});

it('takes no more of a file that grows than was asked for', async () => {
  await writeFile(join(dir, 'file'), randomBytes(600_000));
  const chunks = fileChunks(join(dir, 'file'), 600_000);
  const first = await chunks.next();
  await appendFile(join(dir, 'file'), 'more');
  const rest = await all(chunks);
  expect((first.value as Buffer).length + rest.length).toBe(600_000);
});

it('fails for what is not there', async () => {
  await expect(all(fileChunks(join(dir, 'none')))).rejects.toMatchObject({ code: 'ENOENT' });
});

it('can be left in the middle', async () => {
  await writeFile(join(dir, 'file'), randomBytes(3_000_000));
  for await (const chunk of fileChunks(join(dir, 'file'))) {
    expect(chunk.length).toBe(524_288);
    break;
  }
});
