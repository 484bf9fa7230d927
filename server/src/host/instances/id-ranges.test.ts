import { mkdirSync, mkdtempSync, readdirSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { openIdRanges, type IdRangesOptions } from './id-ranges.ts';

describe('ranges of host ids', () => {
  let dir: string;
  beforeEach(() => {
    dir = mkdtempSync(join(tmpdir(), 'cay-ids-'));
  });
  afterEach(() => rmSync(dir, { recursive: true }));

  const registry = () => join(dir, 'registry');
  const open = (installation: string, options: Partial<IdRangesOptions> = {}) =>
    openIdRanges({
      instancesDir: join(dir, installation),
      registry: registry(),
      areas: [
        { from: 0x10_0000, count: 3 },
        { from: 0x80_0000, count: 2 },
      ],
      subordinate: [],
      ...options,
    });
  function instance(name: string, installation = 'one'): string {
    const path = join(dir, installation, name);
    mkdirSync(path, { recursive: true });
    return path;
  }

  it('are different for every instance of every installation, the second area after the first', () => {
    const [one, two] = [open('one'), open('two')];
    const ids = [
      one.claim(instance('a')),
      two.claim(instance('a', 'two')),
      one.claim(instance('b')),
      two.claim(instance('b', 'two')),
      one.claim(instance('c')),
    ].map(({ hostId }) => hostId);
    expect(new Set(ids.slice(0, 3))).toEqual(new Set([0x10_0000, 0x11_0000, 0x12_0000]));
    expect(new Set(ids.slice(3))).toEqual(new Set([0x80_0000, 0x81_0000]));
    expect(() => one.claim(instance('d'))).toThrow(expect.objectContaining({ code: 'resource_exhausted' }));
    one.release(join(dir, 'one', 'b'));
    expect(two.claim(instance('c', 'two')).hostId).toBe(ids[2]);
  });

  it('are known to the server that comes next, which can give them back', () => {
    const { hostId } = open('one').claim(instance('a'));
    const next = open('one');
    next.release(join(dir, 'one', 'a'));
    next.release(join(dir, 'one', 'a'));
    expect(readdirSync(registry())).toEqual([]);
    next.keep(instance('a'), { hostId, size: 65_536 });
    next.keep(instance('a'), { hostId, size: 65_536 });
    expect(readdirSync(registry())).toEqual([String(hostId)]);
  });

  it('are free again when the directory of their instance is gone, also of another server', () => {
    open('one').claim(instance('a'));
    open('one').claim(instance('b'));
    rmSync(join(dir, 'one', 'a'), { recursive: true });
    open('two');
    expect(readdirSync(registry())).toHaveLength(1);
  });

  it('of another server are left alone when the directory of links was emptied meanwhile', () => {
    const areas = [{ from: 0x10_0000, count: 1 }];
    const [one, two] = [open('one', { areas }), open('two', { areas })];
    one.claim(instance('a'));
    rmSync(registry(), { recursive: true });
    const { hostId } = two.claim(instance('a', 'two'));
    one.release(join(dir, 'one', 'a'));
    expect(readdirSync(registry())).toEqual([String(hostId)]);
  });

  it('leave out what accounts of the machine may use', () => {
    const file = join(dir, 'subuid');
    writeFileSync(file, 'someone:1114111:2\n\nmalformed\n');
    const ranges = open('one', {
      areas: [{ from: 0x10_0000, count: 3 }],
      subordinate: [file, join(dir, 'missing')],
    });
    expect(ranges.claim(instance('a')).hostId).toBe(0x12_0000);
    expect(() => ranges.claim(instance('b'))).toThrow('every range of host ids');
  });
});
