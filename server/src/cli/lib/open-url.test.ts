import { describe, expect, it } from 'vitest';
import { openUrl } from './open-url.ts';

const url = 'http://127.0.0.1:7070/p/box/8000/';

describe('openUrl()', () => {
  it('has the token of a private port in it', () => {
    expect(openUrl({ port: 8000, visibility: 'private', url, token: 'a+b' })).toBe(`${url}?cay_token=a%2Bb`);
  });

  it('is the plain address of a public port', () => {
    expect(openUrl({ port: 8000, visibility: 'public', url, token: 't' })).toBe(url);
  });

  it('is what the server says, where it says it', () => {
    const exposed = { port: 8000, visibility: 'private' as const, url, token: 't', openUrl: 'http://x/' };
    expect(openUrl(exposed)).toBe('http://x/');
  });
});
