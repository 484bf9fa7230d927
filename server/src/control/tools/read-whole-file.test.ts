import { describe, expect, it } from 'vitest';
import type { Files } from '../../guest/guest.ts';
import { readWholeFile } from './read-whole-file.ts';

const MiB = 1024 ** 2;
const signal = new AbortController().signal;

/** A file that is said to have that size, and goes on and on. */
function lying(sizeBytes: number, pieces: number) {
  const asked: unknown[] = [];
  const files = {
    read: async (_path: string, options: { length?: number }) => {
      asked.push(options.length);
      return {
        info: { sizeBytes },
        data: (async function* () {
          for (let piece = 0; piece < pieces; piece++) yield new Uint8Array(MiB);
          if (pieces > 100) throw new Error('more was read than may be');
        })(),
      };
    },
  } as unknown as Pick<Files, 'read'>;
  return { asked, files };
}

describe('a whole file of a sandbox', () => {
  it('is what is there, up to a bound', async () => {
    const { files, asked } = lying(2 * MiB, 2);
    expect((await readWholeFile(files, '/a', { most: 2 * MiB, what: 'change', signal })).length).toBe(
      2 * MiB,
    );
    expect(asked).toEqual([2 * MiB + 1]);
  });

  it.each([3, 5 * MiB])('is refused beyond it, also if it says that it has %d bytes', async (sizeBytes) => {
    const { files } = lying(sizeBytes, 10_000);
    const reading = readWholeFile(files, '/a', { most: 4 * MiB, what: 'change', signal });
    await expect(reading).rejects.toMatchObject({ code: 'invalid_argument' });
  });
});
