import { existsSync } from 'node:fs';
import { readFile, readdir } from 'node:fs/promises';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { ROOT } from '../support/markdown.ts';

const text = await readFile(join(ROOT, 'SECURITY.md'), 'utf8');
const section = /^## The walls[^\n]*\n(.*?)^## /ms.exec(text)?.[1] ?? '';
const walls = section.split(/^(?=\d+\. \*\*)/m).slice(1);
/** Every path of a test that a text names: test files, and the suites that they share. */
const testsIn = (words: string) =>
  words.match(/\b(?:test|server|sdk|guest)\/[\w./-]+\.(?:ts|rs|py)\b/g) ?? [];

describe('the walls in SECURITY.md', () => {
  it('are numbered, and each names a test that tries it', () => {
    expect(walls.length).toBeGreaterThanOrEqual(9);
    const bare = walls.filter((wall) => !testsIn(wall).some((path) => /(?:^test\/|\.test\.ts$)/.test(path)));
    expect(bare.map((wall) => wall.slice(0, 60))).toEqual([]);
  });

  it('name tests that exist', () => {
    expect(testsIn(text).filter((path) => !existsSync(join(ROOT, path)))).toEqual([]);
  });

  it('leave out no file of test/attacks', async () => {
    const files = (await readdir(join(ROOT, 'test/attacks'))).filter((name) => name.endsWith('.test.ts'));
    expect(files.map((name) => `test/attacks/${name}`).filter((path) => !text.includes(path))).toEqual([]);
  });
});
