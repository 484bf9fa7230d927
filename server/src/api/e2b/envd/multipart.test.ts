import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { boundaryOf, readParts } from './multipart.ts';

async function* inPieces(bytes: Uint8Array, size: number): AsyncGenerator<Uint8Array> {
  for (let at = 0; at < bytes.length; at += size) yield bytes.subarray(at, at + size);
}

interface File {
  name: string;
  content: Uint8Array;
}

async function read(bytes: Uint8Array, boundary: string, size = 11): Promise<File[]> {
  const files: File[] = [];
  for await (const part of readParts(inPieces(bytes, size), boundary)) {
    const content = Buffer.concat(await Array.fromAsync(part.data));
    files.push({ name: part.filename ?? '', content: new Uint8Array(content) });
  }
  return files;
}

describe('readParts()', () => {
  it('gives back what the platform encodes, however it was cut', async () => {
    const file = fc.record({
      name: fc.string({ unit: 'grapheme', minLength: 1 }),
      content: fc.uint8Array({ maxLength: 300 }),
    });
    await fc.assert(
      fc.asyncProperty(
        fc.array(file, { minLength: 1, maxLength: 4 }),
        fc.integer({ min: 1, max: 100 }),
        async (files, size) => {
          const names = files.map(({ name }) => name.replaceAll(/[\\\r\n]|%22|%0D|%0A/g, '_').toWellFormed());
          const form = new FormData();
          for (const [index, { content }] of files.entries())
            form.append('file', new Blob([new Uint8Array(content)]), names[index]!);
          const response = new Response(form);
          const bytes = await response.bytes();
          expect(await read(bytes, boundaryOf(response.headers.get('content-type')!), size)).toEqual(
            files.map(({ content }, index) => ({ name: names[index], content: new Uint8Array(content) })),
          );
        },
      ),
      { numRuns: 50 },
    );
  });

  it('leaves what looks nearly like a boundary in the content', async () => {
    const content = '\r\n--b\r\n--bounda\r\n-\r\n';
    const body = `--boundary\r\nContent-Disposition: form-data; name="file"; filename="a \\"b\\""\r\n\r\n${content}\r\n--boundary--\r\n`;
    expect(await read(Buffer.from(body), 'boundary', 1)).toEqual([
      { name: 'a "b"', content: new Uint8Array(Buffer.from(content)) },
    ]);
  });

  it('skips a part that is not read', async () => {
    const part = (name: string) => `--x\r\ncontent-disposition: form-data; name="${name}"\r\n\r\ncontent\r\n`;
    const names: (string | undefined)[] = [];
    for await (const { name } of readParts(inPieces(Buffer.from(`${part('a')}${part('b')}--x--`), 5), 'x'))
      names.push(name);
    expect(names).toEqual(['a', 'b']);
  });

  it('either reads or rejects any bytes at all', async () => {
    await fc.assert(
      fc.asyncProperty(fc.uint8Array({ maxLength: 100 }), async (noise) => {
        const bytes = Buffer.concat([Buffer.from('--x\r\n'), noise]);
        const result = await read(bytes, 'x').catch((error: unknown) => error);
        expect(Array.isArray(result) || (result as { name: string }).name === 'CayError').toBe(true);
      }),
    );
  });

  it('rejects a body that is cut off, and headers without end', async () => {
    await expect(read(Buffer.from('--x\r\n\r\nabc'), 'x')).rejects.toMatchObject({
      code: 'invalid_argument',
    });
    await expect(read(Buffer.from(`--x\r\n${'a: b\r\n'.repeat(10_000)}`), 'x', 4096)).rejects.toMatchObject({
      code: 'invalid_argument',
    });
    await expect(read(Buffer.from(`--x\r\n${'a'.repeat(40_000)}`), 'x', 4096)).rejects.toMatchObject({
      code: 'invalid_argument',
    });
  });
});
