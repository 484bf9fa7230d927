import { execFileSync } from 'node:child_process';
import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { ROOT } from '../support/markdown.ts';

const COLUMNS = 110;
const files = execFileSync('git', ['ls-files', '*.ts', '*.rs'], { cwd: ROOT, encoding: 'utf8' })
  .split('\n')
  .filter((file) => file !== '');

async function longComments(file: string): Promise<string[]> {
  const text = await readFile(join(ROOT, file), 'utf8');
  return text
    .split('\n')
    .flatMap((line, at) =>
      /^\s*(\*|\/[*/])/.test(line) && line.length > COLUMNS ? [`${file}:${at + 1}`] : [],
    );
}

describe('comments', () => {
  it(`have at most ${COLUMNS} columns`, async () => {
    expect(files.length).toBeGreaterThan(1_000);
    expect((await Promise.all(files.map(longComments))).flat()).toEqual([]);
  });
});
