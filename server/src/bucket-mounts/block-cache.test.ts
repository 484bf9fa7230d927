import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { BLOCK_BYTES, BlockCache } from './block-cache.ts';
import { openTestFiles } from './testing/open-files.ts';

const block = (text: string) => async () => Buffer.from(text);
const owner = (mount: string, project = 'p') => ({ mount, project });

describe('the cache of blocks', () => {
  it('keeps no more than it may, and a project no more than its share', async () => {
    const wish = fc.record({ mount: fc.nat(3), project: fc.nat(2), key: fc.nat(40), drop: fc.boolean() });
    await fc.assert(
      fc.asyncProperty(fc.array(wish, { maxLength: 120 }), async (wishes) => {
        const cache = new BlockCache({ bytes: 16 * BLOCK_BYTES, loads: 4 });
        const counts = new Map<string, number>();
        for (const { mount, project, key, drop } of wishes) {
          const id = `${project}.${mount}`;
          if (drop && key === 0) cache.dropMount(id);
          const found = await cache.get(owner(id, `p${project}`), String(key), block(`${id} ${key}`));
          expect(found.toString()).toBe(`${id} ${key}`);
          counts.set(id, 1);
          expect(cache.size).toBeLessThanOrEqual(16);
          expect(cache.ofProject(`p${project}`)).toBeLessThanOrEqual(4);
        }
        for (const id of counts.keys()) cache.dropMount(id);
        expect(cache.size).toBe(0);
      }),
    );
  });

  it('loads a block once for all who ask, and again after a failure', async () => {
    const cache = new BlockCache({ bytes: 16 * BLOCK_BYTES, loads: 4 });
    let loads = 0;
    const failing = async () => {
      loads++;
      throw new Error('away');
    };
    const asked = [cache.get(owner('m'), 'k', failing), cache.get(owner('m'), 'k', failing)];
    expect((await Promise.allSettled(asked)).map(({ status }) => status)).toEqual(['rejected', 'rejected']);
    expect(loads).toBe(1);
    expect((await cache.get(owner('m'), 'k', block('x'))).toString()).toBe('x');
    expect(cache.size).toBe(1);
  });

  it('loads for a project while the server of another never answers', async () => {
    const cache = new BlockCache({ bytes: 64 * BLOCK_BYTES, loads: 4 });
    const never = () => new Promise<Buffer>(() => {});
    for (let index = 0; index < 100; index++)
      cache.get(owner('slow', 'slow'), String(index), never).catch(() => {});
    expect((await cache.get(owner('m'), 'k', block('x'))).toString()).toBe('x');
  });

  it('never has two contents of one object', async () => {
    await using world = await openTestFiles();
    const { bucket, files } = world;
    bucket.objects.set('a', Buffer.alloc(8 * BLOCK_BYTES, 'a'));
    const { node } = await files.lookup(1, 'a');
    await files.open.open(node, 0);
    const first = Buffer.concat(await files.open.read(node, 0, 10));
    bucket.objects.set('a', Buffer.alloc(8 * BLOCK_BYTES, 'b'));
    const results = await Promise.allSettled(
      Array.from({ length: 8 * 4 }, (_, index) => files.open.read(node, (index * BLOCK_BYTES) / 4, 10)),
    );
    expect(first.toString()).toBe('aaaaaaaaaa');
    for (const result of results)
      if (result.status === 'fulfilled') expect(Buffer.concat(result.value).toString()).toBe('aaaaaaaaaa');
    expect(results.some(({ status }) => status === 'rejected')).toBe(true);
  });

  it('reads what the object has, from anywhere and in any order', async () => {
    const content = Buffer.from(Array.from({ length: 200_000 }, (_, index) => index % 251));
    await fc.assert(
      fc.asyncProperty(
        fc.array(fc.tuple(fc.nat(220_000), fc.nat(70_000)), { maxLength: 20 }),
        async (reads) => {
          await using world = await openTestFiles();
          world.bucket.objects.set('a', content);
          const { node } = await world.files.lookup(1, 'a');
          for (const [from, length] of reads) {
            const found = Buffer.concat(await world.files.open.read(node, from, length));
            expect(found.equals(content.subarray(from, from + length))).toBe(true);
          }
        },
      ),
      { numRuns: 30 },
    );
  });
});
