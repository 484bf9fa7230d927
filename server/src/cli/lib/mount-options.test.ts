import { describe, expect, it } from 'vitest';
import { parseTmpfs, parseVolume } from './mount-options.ts';

describe('mounts on the command line', () => {
  it.each([
    ['data:/data', { type: 'volume', volume: 'data', path: '/data' }],
    ['data:/data:rw', { type: 'volume', volume: 'data', path: '/data' }],
    ['data:/data:ro', { type: 'volume', volume: 'data', path: '/data', readOnly: true }],
    ['d:/d,subpath=a/b', { type: 'volume', volume: 'd', path: '/d', subpath: 'a/b' }],
    ['/srv/set:/set', { type: 'host', source: '/srv/set', path: '/set', readOnly: true }],
    ['/srv/set:/set:rw', { type: 'host', source: '/srv/set', path: '/set', readOnly: false }],
  ])('reads the volume %s', (text, mount) => expect(parseVolume(text)).toEqual(mount));

  it.each(['', 'data', ':/data', 'a:b:c:d', 'a:/b:no', 'a:/b,sub=x', 'a:/b,subpath=', '/a:/b,subpath=x'])(
    'refuses the volume "%s"',
    (text) => expect(() => parseVolume(text)).toThrow(/no mount/),
  );

  it.each([
    ['/scratch', { type: 'tmpfs', path: '/scratch' }],
    ['/s:size=64m,mode=1777', { type: 'tmpfs', path: '/s', sizeBytes: 64 * 1024 ** 2, mode: '1777' }],
    ['/s:noexec', { type: 'tmpfs', path: '/s', noexec: true }],
  ])('reads the tmpfs %s', (text, mount) => expect(parseTmpfs(text)).toEqual(mount));

  it.each(['', '/s:size=x', '/s:uid=0', '/s:noexec=1', '/s:a:b'])('refuses the tmpfs "%s"', (text) =>
    expect(() => parseTmpfs(text)).toThrow(/no mount/),
  );
});
