import { describe, expect, it } from 'vitest';
import { ignoreFile } from './ignore-file.ts';
import { pathPattern } from './path-pattern.ts';

describe('patterns for paths', () => {
  it.each([
    ['*.txt', 'a.txt', true],
    ['*.txt', 'dir/a.txt', false],
    ['dir/*', 'dir/a', true],
    ['dir/*', 'dir/a/b', false],
    ['?', 'é', true],
    ['?', '/', false],
    ['[a-c]x', 'bx', true],
    ['[^a-c]x', 'bx', false],
    ['[^a]b', '/b', false],
    ['a\\*', 'a*', true],
    ['a\\*', 'ab', false],
    ['[\\]]', ']', true],
    ['**', 'a/b', false],
  ])('%s and %s: %s', (pattern, path, matches) => {
    expect(pathPattern(pattern).matches(path)).toBe(matches);
  });

  it.each([
    ['**', 'a/b/c', true],
    ['**/c', 'a/b/c', true],
    ['**/c', 'c', true],
    ['**/c', 'a/bc', false],
    ['a/**', 'a/b/c', true],
    ['a/**/c', 'a/c', true],
    ['a/**/c', 'a/b/b/c', true],
    ['a/**/c', 'ab/c', false],
    ['*/**/x', 'a/x', true],
  ])('deep: %s and %s: %s', (pattern, path, matches) => {
    expect(pathPattern(pattern, { deep: true }).matches(path)).toBe(matches);
  });

  it('refuses what is no pattern', () => {
    for (const pattern of ['[a', '[]', 'a\\', '[a-', '[^]'])
      expect(() => pathPattern(pattern)).toThrow(Error);
  });

  it('takes no longer for patterns that are made to', () => {
    const pattern = pathPattern('*a'.repeat(2000) + 'b');
    const began = performance.now();
    expect(pattern.matches('a'.repeat(4000))).toBe(false);
    expect(performance.now() - began).toBeLessThan(10_000);
  });
});

describe('.dockerignore', () => {
  const left = (text: string, paths: string[]) => paths.filter((path) => !ignoreFile(text).ignores(path));

  it('leaves out what it names, and all below', () => {
    expect(left('node_modules\n*.log\n', ['node_modules/a/b', 'x.log', 'dir/x.log', 'src'])).toEqual([
      'dir/x.log',
      'src',
    ]);
    expect(left('**/*.log', ['x.log', 'dir/deep/x.log', 'log'])).toEqual(['log']);
    expect(left('/a/./b/\n', ['a/b', 'a/b/c', 'b'])).toEqual(['b']);
  });

  it('takes the last line that fits', () => {
    expect(left('*\n!src\nsrc/secret', ['README', 'src/a', 'src/secret'])).toEqual(['src/a']);
    expect(left('*.md\n!README*.md\nREADME-secret.md', ['a.md', 'README.md', 'README-secret.md'])).toEqual([
      'README.md',
    ]);
  });

  it('has comments, empty lines, and a byte order mark', () => {
    expect(left('\uFEFFa\n# b\n\n  c  \n #d', ['a', 'b', 'c', 'd'])).toEqual(['b', 'd']);
  });

  it('looks below what it leaves out while there are exceptions', () => {
    expect(ignoreFile('dir').ignoresAllBelow('dir')).toBe(true);
    expect(ignoreFile('dir\n!dir/a').ignoresAllBelow('dir')).toBe(false);
  });

  it('names the line that is wrong', () => {
    expect(() => ignoreFile('a\n[b')).toThrow('line 2');
    expect(() => ignoreFile('!')).toThrow('line 1');
  });
});
