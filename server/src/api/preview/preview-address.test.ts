import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { newId } from '@cay/sdk/protocol';
import { previewAddresses, previewHost } from './preview-address.ts';

const addresses = previewAddresses(['Preview.Example.com']);
const at = (host: string, url = '/') => addresses.of({ headers: { host }, url });

describe('previewAddresses()', () => {
  it('understands every host that it makes', () => {
    fc.assert(
      fc.property(
        fc.integer({ min: 1, max: 65_535 }),
        fc.constantFrom('preview.example.com', 'localhost'),
        fc.constantFrom('', ':7070', '.'),
        (port, domain, end) => {
          const id = newId('sbx');
          expect(at(previewHost(id, port, domain) + end, '/x?y')).toEqual({
            target: { id, port },
            path: '/x?y',
            prefix: '',
          });
        },
      ),
    );
  });

  it('leaves other hosts to the API', () => {
    for (const host of [
      'localhost',
      'localhost:7070',
      '127.0.0.1',
      'preview.example.com',
      'api.preview.example.com',
      '[::1]:7070',
      '',
      'x'.repeat(500),
    ]) {
      expect(at(host)).toBeUndefined();
    }
  });

  it('keeps what looks like a preview away from the API though it names none', () => {
    for (const host of [
      '3000-short.localhost',
      '0-aaaaaaaaaaaaaaaaaaaa.localhost',
      '65536-aaaaaaaaaaaaaaaaaaaa.localhost',
      '3000-aaaaaaaaaaaaaaaaaaaa.x.localhost',
    ]) {
      expect(at(host)).toMatchObject({ target: undefined });
    }
    for (const url of [
      '/preview',
      '/preview/',
      '/preview/x/1',
      '/preview/sbx_aaaaaaaaaaaaaaaaaaaa/0/',
      '/preview/sbx_aaaaaaaaaaaaaaaaaaaa/3000x/',
    ]) {
      expect(at('localhost', url)).toMatchObject({ target: undefined });
    }
  });

  it('takes the prefix off a path', () => {
    expect(at('localhost', '/preview/sbx_aaaaaaaaaaaaaaaaaaaa/80/a/b?c')).toEqual({
      target: { id: 'sbx_aaaaaaaaaaaaaaaaaaaa', port: 80 },
      path: '/a/b?c',
      prefix: '/preview/sbx_aaaaaaaaaaaaaaaaaaaa/80',
    });
    expect(at('localhost', '/previews')).toBeUndefined();
  });
});
