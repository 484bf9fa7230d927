import { spawnSync } from 'node:child_process';
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { packTar, unpackTar, type TarEntry } from './tar-archive.ts';

const entry = fc.record({
  path: fc.stringMatching(/^[a-z]{1,20}(\/[a-z]{1,20}){0,3}$/),
  type: fc.constant('file' as const),
  mode: fc.integer({ min: 0, max: 0o7777 }),
  uid: fc.integer({ min: 0, max: 65_535 }),
  gid: fc.integer({ min: 0, max: 65_535 }),
  data: fc.uint8Array({ maxLength: 1500 }).map((bytes) => Buffer.from(bytes)),
});

describe('tar archives', () => {
  it('come back as they were packed', () => {
    fc.assert(
      fc.property(fc.array(entry, { maxLength: 5 }), (entries) => {
        expect(unpackTar(packTar(entries))).toEqual(entries);
      }),
    );
  });

  it('are understood by tar', () => {
    const directory: TarEntry = {
      path: 'home/user',
      type: 'directory',
      mode: 0o755,
      uid: 1000,
      gid: 1000,
      data: Buffer.alloc(0),
    };
    const file: TarEntry = {
      path: 'etc/passwd',
      type: 'file',
      mode: 0o644,
      uid: 0,
      gid: 0,
      data: Buffer.from('root:x:0:0\n'),
    };
    const listed = spawnSync('tar', ['-tv', '--numeric-owner'], { input: packTar([directory, file]) });
    expect(listed.stderr.toString()).toBe('');
    expect(listed.stdout.toString()).toMatch(
      /^drwxr-xr-x 1000\/1000 .* home\/user\/?\n-rw-r--r-- 0\/0 +11 .* etc\/passwd\n$/,
    );
  });

  it('that are cut off or garbage give what is whole, and never throw', () => {
    fc.assert(
      fc.property(fc.uint8Array({ maxLength: 3000 }), (bytes) => {
        expect(unpackTar(Buffer.from(bytes)).every(({ data }) => data.length <= bytes.length)).toBe(true);
      }),
    );
  });
});
