import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { run } from '../../server/src/lib/run.ts';
import { ROOT } from '../support/markdown.ts';

/**
 * A promise that nobody catches ends the process. The linter refuses `void work();` as a statement. It does
 * not see the same as the body of an arrow function or after `return`, so that is looked for here.
 */
describe('the sources of the server', () => {
  it('drop no promise of an async function with void', async () => {
    const { stdout } = await run('git', ['-C', ROOT, 'ls-files', 'server/src']);
    const files = stdout.split('\n').filter((file) => file.endsWith('.ts') && !file.endsWith('.test.ts'));
    expect(files.length).toBeGreaterThan(300);
    const found: string[] = [];
    for (const file of files) {
      const source = await readFile(join(ROOT, file), 'utf8').catch(() => '');
      for (const [text, name] of source.matchAll(/\bvoid (?:this\.)?([#\w]+)\([^\n]*/g)) {
        const isAsync = new RegExp(
          `async (?:function\\*? )?${name}\\(|\\b${name} = async\\b|function ${name}\\([^{;]*\\): Promise<`,
        ).test(source);
        if (isAsync && !text.includes('.catch(')) found.push(`${file}: ${text}`);
      }
    }
    expect(found, 'use inBackground() of server/src/lib/in-background.ts').toEqual([]);
  });
});
