import { mkdtempSync, readdirSync, rmSync, statSync, utimesSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, describe, expect, it } from 'vitest';
import { CayError } from '@cay/sdk/protocol';
import type { QuotaLedger } from '../../tenants/quota-ledger.ts';
import { buildFiles } from './build-files.ts';
import { fixedPart } from './place-files.ts';

const directory = mkdtempSync(join(tmpdir(), 'cay-build-files-'));
afterAll(() => rmSync(directory, { recursive: true, force: true }));
const digest = (letter: string) => letter.repeat(64);
async function* bytes(count: number) {
  for (let sent = 0; sent < count; sent += 10) yield Buffer.alloc(10, 'x');
}

describe('files that are uploaded for builds', () => {
  const files = buildFiles(directory, { maxBytes: 100, maxTotalBytes: 250 });

  it('can be read by their own project, as they were uploaded', async () => {
    await files.put('prj_a', digest('a'), bytes(30));
    expect(await files.has('prj_a', digest('a'))).toBe(true);
    expect(await files.has('prj_b', digest('a'))).toBe(false);
    expect(Buffer.concat(await Array.fromAsync(await files.read('prj_a', digest('a'))))).toEqual(
      Buffer.alloc(30, 'x'),
    );
    await expect(files.read('prj_b', digest('a'))).rejects.toThrow(/were not uploaded/);
  });

  it('are stored whole or not at all', async () => {
    await expect(files.put('prj_a', digest('b'), bytes(110))).rejects.toThrow(/at most 100 bytes/);
    const broken = (async function* () {
      yield* bytes(10);
      throw new Error('cut');
    })();
    await expect(files.put('prj_a', digest('b'), broken)).rejects.toThrow('cut');
    expect(await files.has('prj_a', digest('b'))).toBe(false);
    expect(readdirSync(join(directory, 'prj_a'))).toEqual([digest('a')]);
  });

  it('are removed for new ones, the least recently used first', async () => {
    for (const [index, letter] of ['c', 'd'].entries()) {
      await files.put('prj_c', digest(letter), bytes(100));
      utimesSync(join(directory, 'prj_c', digest(letter)), 1000 + index, 1000 + index);
    }
    await Array.fromAsync(await files.read('prj_c', digest('c')));
    await files.put('prj_c', digest('e'), bytes(100));
    expect(readdirSync(join(directory, 'prj_c')).toSorted()).toEqual([digest('c'), digest('e')]);
  });

  it('are counted correctly during concurrent uploads', async () => {
    let counted: Parameters<QuotaLedger['counts']>[2] = () => 0;
    const quota: Pick<QuotaLedger, 'counts' | 'begin'> = {
      counts: (_key, _name, of) => (counted = of),
      begin: () => {
        let bytes = 0;
        return {
          get bytes() {
            return bytes;
          },
          async add(more) {
            if ((counted('prj_d', undefined as never) as number) + bytes + more > 100)
              throw new CayError('resource_exhausted', 'Too much', { details: { quota: 'uploadBytes' } });
            bytes += more;
          },
          [Symbol.dispose]() {},
        };
      },
    };
    const within = buildFiles(join(directory, 'counted'), { maxBytes: 100, maxTotalBytes: 100, quota });
    const there = () =>
      readdirSync(join(directory, 'counted', 'prj_d')).reduce(
        (sum, name) => sum + statSync(join(directory, 'counted', 'prj_d', name)).size,
        0,
      );
    for (let round = 0; round < 20; round++) {
      const letters = ['a', 'a', 'b', 'b', 'c', 'd', 'e', 'f'];
      await Promise.allSettled(letters.map((letter) => within.put('prj_d', digest(letter), bytes(50))));
      expect(counted('prj_d', undefined as never)).toBe(there());
    }
  });

  it('have digests for names and nothing else', () => {
    for (const name of ['', '..', `../${digest('a')}`, digest('A'), 'a'.repeat(63)]) {
      expect(() => files.has('prj_a', name)).toThrow(/not a SHA-256 digest/);
    }
  });
});

describe('the part of a pattern that is no pattern', () => {
  it('ends where the first wildcard begins', () => {
    for (const [source, fixed] of [
      ['file.txt', 'file.txt'],
      ['folder/', 'folder/'],
      ['.', '.'],
      ['*.txt', ''],
      ['a/b/*.txt', 'a/b'],
      ['a/**/c', 'a'],
      ['a/./b/../c', 'a/c'],
    ] as const) {
      expect(fixedPart(source)).toBe(fixed);
    }
    for (const source of ['../x', '/etc', 'a/../../x']) expect(() => fixedPart(source)).toThrow(/leads out/);
  });
});
