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

  it('are the same in blocks, none of which is copied to make room for another', () => {
    const bytes = new BoundedBytes(10_000_000);
    const piece = Buffer.from(Array.from({ length: 70_001 }, (_, index) => index % 251));
    for (let index = 0; index < 100; index++) bytes.add(piece);
    const blocks = bytes.blocks();
    expect(Math.max(...blocks.map(({ length }) => length))).toBeLessThanOrEqual(1024 * 1024);
    expect(Buffer.concat(blocks).equals(Buffer.concat(Array.from({ length: 100 }, () => piece)))).toBe(true);
    expect(bytes.whole().equals(Buffer.concat(blocks))).toBe(true);
  });

  it('take texts as UTF-8, whatever their length', () => {
    const bytes = new BoundedBytes(10_000_000);
    const texts = Array.from({ length: 200 }, (_, index) => 'aé😀'.repeat(index * 20));
    for (const text of texts) expect(bytes.addText(text)).toBe(true);
    expect(bytes.whole().toString()).toBe(texts.join(''));
    expect(new BoundedBytes(2).addText('a')).toBe(false);
  });

  it('are given back at once when they are not needed any more', () => {
    const bytes = new BoundedBytes(64 * 1024 ** 2);
    for (let index = 0; index < 64; index++) bytes.add(Buffer.alloc(1024 ** 2));
    const before = process.memoryUsage().arrayBuffers;
    bytes.free();
    expect(before - process.memoryUsage().arrayBuffers).toBeGreaterThan(60 * 1024 ** 2);
    expect(bytes.length).toBe(0);
    bytes.free();
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
