import { describe, expect, it } from 'vitest';
import { openPolicy } from '../../policy/policy.ts';
import { checkSettings, imageOf } from './settings.ts';

const settings = {
  guestImage: 'guest:1',
  baseImage: 'debian:stable-slim',
  templates: { python: 'registry.local:5000/python:3' },
};

describe('imageOf', () => {
  it('knows names, and images that say which version is meant', () => {
    expect(imageOf('base', settings)).toBe('debian:stable-slim');
    expect(imageOf('python', settings)).toBe('registry.local:5000/python:3');
    for (const image of ['node:24-slim', 'ghcr.io/a/b_c:1.2', `busybox@sha256:${'0'.repeat(64)}`])
      expect(imageOf(image, settings)).toBe(image);
  });

  it.each([
    'no-such-template',
    '../../etc',
    '/etc',
    'base/../../root',
    'a\u0000b',
    'constructor',
    'x:',
    ':1',
    'A:1',
    'a b:1',
  ])('refuses %j', (template) => {
    expect(() => imageOf(template, settings)).toThrow(
      expect.objectContaining({ code: 'not_found' }) as Error,
    );
  });
});

describe('imageOf with images that are allowed by pattern', () => {
  const picky = { ...settings, policy: openPolicy({ images: ['node:*'] }) };

  it('takes those, and what the operator has named itself', () => {
    for (const template of ['base', 'python', 'node:24-slim'])
      expect(imageOf(template, picky)).toBe(imageOf(template, settings));
  });

  it.each(['busybox:1', 'evil.example.com/node:24', `busybox@sha256:${'0'.repeat(64)}`])(
    'refuses %j',
    (template) => {
      expect(() => imageOf(template, picky)).toThrow(
        expect.objectContaining({ code: 'permission_denied' }) as Error,
      );
    },
  );
});

describe('checkSettings', () => {
  it('refuses an installation that could not be a label, and a lease that is over at once', () => {
    expect(() => checkSettings({ ...settings, installation: 'No Label' })).toThrow('"No Label"');
    expect(() => checkSettings({ ...settings, leaseSeconds: 5 })).toThrow('5 s');
    expect(checkSettings(settings)).toMatchObject({ installation: 'default', leaseSeconds: 3600 });
  });
});
