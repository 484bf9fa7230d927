import { describe, expect, it } from 'vitest';
import { BoundedBytes, collectBytes } from './bounded-bytes.ts';

async function* pieces(count: number, bytes: number): AsyncGenerator<Uint8Array> {
  for (let index = 0; index < count; index++) yield Buffer.alloc(bytes, index % 256);
}

describe('bounded bytes', () => {
  it('are all that was added, up to the bound', () => {
    const bytes = new BoundedBytes(1000);
    expect([
      bytes.add(Buffer.from('ab')),
      bytes.add(Buffer.alloc(2000, 'c')),
      bytes.add(Buffer.from('d')),
    ]).toEqual([2, 998, 0]);
    expect(bytes.whole().toString()).toBe(`ab${'c'.repeat(998)}`);
  });

  it('are collected from a source, or nothing of one that has more', async () => {
    expect((await collectBytes(pieces(300, 1), 300))?.length).toBe(300);
    let closed = false;
    async function* endless(): AsyncGenerator<Uint8Array> {
      try {
        for (;;) yield Buffer.alloc(100);
      } finally {
        closed = true;
      }
    }
    expect(await collectBytes(endless(), 1000)).toBeUndefined();
    expect(closed).toBe(true);
  });

  it('take about as much memory as they have, in however small pieces they come', async () => {
    const before = process.memoryUsage();
    const all = await collectBytes(pieces(1_000_000, 1), 4_000_000);
    const after = process.memoryUsage();
    expect(all?.length).toBe(1_000_000);
    expect(after.arrayBuffers - before.arrayBuffers).toBeLessThan(64 * 1024 * 1024);
  });
});
