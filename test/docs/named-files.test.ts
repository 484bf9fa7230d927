import { execFileSync } from 'node:child_process';
import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { ROOT } from '../support/markdown.ts';

const files = execFileSync('git', ['ls-files', '--cached', '--others', '--exclude-standard'], {
  cwd: ROOT,
  encoding: 'utf8',
}).split('\n');
const text = await readFile(join(ROOT, 'docs/architecture.md'), 'utf8');
/** Sources in backquotes, by their whole path or the end of it. */
const named = new Set([...text.matchAll(/`([\w./-]+\.(?:ts|rs))`/g)].map((match) => match[1]!));

describe('docs/architecture.md', () => {
  it('names files that exist', () => {
    expect(named.size).toBeGreaterThan(100);
    const missing = [...named].filter(
      (name) => !files.some((file) => file === name || file.endsWith(`/${name}`)),
    );
    expect(missing).toEqual([]);
  });
});
