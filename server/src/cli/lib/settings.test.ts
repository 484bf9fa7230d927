import { mkdir, mkdtemp, rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import { parsePlace } from '../verbs/cp.ts';
import { parsePorts } from '../verbs/forward.ts';
import { addressOf, cliFileOf, dataDirOf, listenOf } from './settings.ts';

let dir: string;
beforeEach(async () => {
  dir = await mkdtemp('/tmp/cay-settings-');
  for (const name of ['CAY_URL', 'CAY_API_KEY', 'CAY_DATA', 'CAY_LISTEN']) vi.stubEnv(name, undefined);
});
afterEach(async () => {
  vi.unstubAllEnvs();
  await rm(dir, { recursive: true });
});

describe('listenOf()', () => {
  it('reads host and port', () => {
    expect(listenOf('0.0.0.0:80')).toEqual({ host: '0.0.0.0', port: 80 });
    expect(listenOf('[::1]:7070')).toEqual({ host: '::1', port: 7070 });
    expect(listenOf(':9')).toEqual({ host: '127.0.0.1', port: 9 });
    expect(listenOf()).toEqual({ host: '127.0.0.1', port: 7070 });
  });

  it.each(['7070', 'a:b', '::1:80', '1.2.3.4:70000', ''])('refuses "%s"', (text) => {
    expect(() => listenOf(text)).toThrow('not an address');
  });
});

describe('addressOf()', () => {
  it('takes what the server of the data directory left', async () => {
    await writeFile(cliFileOf(dir), JSON.stringify({ url: 'http://127.0.0.1:1', key: 'k' }));
    expect(addressOf({ data: dir })).toEqual({ url: 'http://127.0.0.1:1', apiKey: 'k', own: true });
  });

  it('shows the key of the server here to no other server', async () => {
    await writeFile(cliFileOf(dir), JSON.stringify({ url: 'http://127.0.0.1:1', key: 'k' }));
    expect(addressOf({ data: dir, url: 'http://elsewhere' })).toEqual({
      url: 'http://elsewhere',
      apiKey: undefined,
      own: false,
    });
  });

  it('prefers flags to the environment', async () => {
    await writeFile(cliFileOf(dir), JSON.stringify({ url: 'http://127.0.0.1:1', key: 'k' }));
    vi.stubEnv('CAY_URL', 'http://env');
    vi.stubEnv('CAY_API_KEY', 'env-key');
    expect(addressOf({})).toEqual({ url: 'http://env', apiKey: 'env-key', own: false });
    expect(addressOf({ data: dir })).toEqual({ url: 'http://127.0.0.1:1', apiKey: 'k', own: true });
    expect(addressOf({ data: dir, url: 'http://flag' }).url).toBe('http://flag');
    vi.stubEnv('CAY_DATA', '/x');
    expect(dataDirOf({})).toBe('/x');
    expect(dataDirOf({ data: '/y' })).toBe('/y');
  });

  it('takes the default address only where no directory was named', () => {
    vi.stubEnv('CAY_DATA', dir);
    expect(() => addressOf({})).toThrow(`No server has used the data directory "${dir}" yet`);
    expect(() => addressOf({ data: join(dir, 'nope') })).toThrow('No server has used');
  });

  it('does not take a file that cannot be read for one that is missing', async () => {
    await mkdir(cliFileOf(dir));
    expect(() => addressOf({ data: dir })).toThrow(`Cannot read "${cliFileOf(dir)}": it is a directory`);
  });

  it.each(['elsewhere:80', 'ftp://x', 'http://', ''])('refuses the address "%s"', (url) => {
    expect(() => addressOf({ url })).toThrow('is not the address of a server');
  });
});

describe('places and ports', () => {
  it('distinguish a sandbox from a path with a colon', () => {
    expect(parsePlace('box:/a:b')).toEqual({ ref: 'box', path: '/a:b' });
    expect(parsePlace('box:a')).toEqual({ ref: 'box', path: '/home/user/a' });
    expect(parsePlace('box:')).toEqual({ ref: 'box', path: '/home/user/' });
    expect(parsePlace('./a:b')).toEqual({ path: './a:b' });
    expect(parsePlace('/a:b')).toEqual({ path: '/a:b' });
  });

  it('are one number or two', () => {
    expect(parsePorts('80')).toEqual({ local: 80, remote: 80 });
    expect(parsePorts('0:80')).toEqual({ local: 0, remote: 80 });
    for (const text of ['', '80:', '80:0', '70000:80', 'a:b'])
      expect(() => parsePorts(text)).toThrow('pair of ports');
  });
});
