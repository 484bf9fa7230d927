import { describe, expect, it } from 'vitest';
import { checkWorkdir } from './workdir.ts';

describe('checkWorkdir', () => {
  it.each([
    '/',
    '/home/user',
    '/home/user/deep/er',
    '/work',
    '/usr/src/app',
    '/etcetera',
    '/.cay-other',
    '/tmp',
    '/work/',
  ])('takes %s', (workdir) => {
    expect(() => checkWorkdir(workdir)).not.toThrow();
  });

  it.each([
    ...[
      '/.cay',
      '/.cay/guest',
      '/.cay-run',
      '/.cay-run/guest.sock',
      '/etc',
      '/etc/ssl',
      '/proc',
      '/proc/self',
      '/dev',
      '/dev/shm',
      '/sys',
    ],
    ...['/home/user/../../etc', '/./.cay', '//proc', '/etc/', '/work//', '/work/.'],
    ...['/work:ro', '/a\nb', '/a\u0000b'],
    `/${'a'.repeat(256)}`,
    `/${'a/'.repeat(2000)}`,
    `/${'ä'.repeat(200)}`,
  ])('refuses %j, and says why', (workdir) => {
    expect(() => checkWorkdir(workdir)).toThrow(
      expect.objectContaining({
        code: 'invalid_argument',
        message: expect.stringMatching(/^A pod cannot have .{1,300}$/s) as string,
      }) as Error,
    );
  });
});
