import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { objectPaths } from './object-paths.ts';
import { packBase, planDown, planUp, unpackBase, type Base } from './sync-plan.ts';

const object = (key: string, etag: string) => ({ key, etag, sizeBytes: 1, modifiedAtMs: 1 });
const objects = (of: Record<string, string>) =>
  new Map(Object.entries(of).map(([key, etag]) => [key, object(key, etag)]));
const files = (of: Record<string, number>) =>
  new Map(Object.entries(of).map(([path, modifiedAtMs]) => [path, { sizeBytes: 1, modifiedAtMs }]));
const base = (of: Record<string, [string, number]>): Base =>
  new Map(
    Object.entries(of).map(([path, [etag, modifiedAtMs]]) => [path, { etag, sizeBytes: 1, modifiedAtMs }]),
  );
const policy = { onConflict: 'fail', deletions: false } as const;

describe('a plan of a sync', () => {
  const known = base({ a: ['1', 1], b: ['1', 1] });

  it('copies what is new or changed on one side, and nothing else', () => {
    const now = [objects({ a: '2', b: '1', c: '1' }), files({ a: 1, b: 1 })] as const;
    expect(planDown(...now, known, policy)).toEqual({ copy: ['a', 'c'], remove: [], conflicts: [] });
    expect(planUp(objects({ a: '1', b: '1' }), files({ a: 2, b: 1, d: 1 }), known, policy)).toEqual({
      copy: ['a', 'd'],
      remove: [],
      conflicts: [],
    });
  });

  it('lets one side win a conflict if it is told so', () => {
    const now = [objects({ a: '2', b: '1' }), files({ a: 2, b: 1 })] as const;
    for (const plan of [planDown, planUp]) {
      expect(plan(...now, known, policy)).toEqual({ copy: [], remove: [], conflicts: ['a'] });
    }
    expect(planDown(...now, known, { ...policy, onConflict: 'bucket' }).copy).toEqual(['a']);
    expect(planDown(...now, known, { ...policy, onConflict: 'sandbox' }).copy).toEqual([]);
    expect(planUp(...now, known, { ...policy, onConflict: 'sandbox' }).copy).toEqual(['a']);
    expect(planUp(...now, known, { ...policy, onConflict: 'bucket' }).copy).toEqual([]);
  });

  it('takes a file that both sides have from the start for a conflict', () => {
    expect(planDown(objects({ x: '1' }), files({ x: 1 }), new Map(), policy).conflicts).toEqual(['x']);
  });

  it('removes what the other side removed, only if it is told so and nobody changed it', () => {
    const deletions = { ...policy, deletions: true };
    expect(planUp(objects({ a: '1', b: '1' }), files({ b: 1 }), known, policy).remove).toEqual([]);
    expect(planUp(objects({ a: '1', b: '1' }), files({ b: 1 }), known, deletions).remove).toEqual(['a']);
    expect(planDown(objects({ b: '1' }), files({ a: 1, b: 1 }), known, deletions).remove).toEqual(['a']);
    expect(planUp(objects({ a: '2', b: '1' }), files({ b: 1 }), known, deletions).conflicts).toEqual(['a']);
  });

  it('keeps its base', async () => {
    await fc.assert(
      fc.asyncProperty(fc.array(fc.tuple(fc.string(), fc.string(), fc.nat(), fc.nat())), async (rows) => {
        const one: Base = new Map(
          rows.map(([path, etag, sizeBytes, modifiedAtMs]) => [path, { etag, sizeBytes, modifiedAtMs }]),
        );
        expect(await unpackBase(await packBase(one, 'p1'), 'p1')).toEqual(one);
      }),
    );
    expect((await unpackBase(null, 'p1')).size).toBe(0);
  });
});

describe('objectPaths()', () => {
  const paths = async (...keys: string[]) =>
    [...(await objectPaths(list(keys.map((key) => object(key, '1'))), 'p/', 'p1')).keys()].toSorted();

  it('takes keys for paths, and those with a slash at the end for directories', async () => {
    expect(await paths('p/', 'p/a', 'p/d/', 'p/d/e f', 'p/ü')).toEqual(['a', 'd/e f', 'ü']);
  });

  it.each([
    'p/../x',
    'p/a/../../x',
    'p//x',
    'p/./x',
    'p/..',
    'p/a\0b',
    'p/a\nb',
    `p/${'x'.repeat(256)}`,
    'p//etc/passwd',
  ])('refuses %j', async (key) => {
    await expect(paths(key)).rejects.toMatchObject({ code: 'failed_precondition' });
  });

  it('refuses an object that is a directory of another', async () => {
    await expect(paths('p/a', 'p/a/b')).rejects.toMatchObject({ code: 'failed_precondition' });
    await expect(paths('p/a/b/c', 'p/a')).rejects.toMatchObject({ code: 'failed_precondition' });
  });
});

async function* list<T>(items: T[]): AsyncGenerator<T> {
  yield* items;
}
