/** The README's tour, line by line, as a new user: an empty data directory and nothing running. */
import { spawn } from 'node:child_process';
import { chmod, mkdtemp, readFile, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { ended } from '../support/cay.ts';
import { whyNoLocal } from '../support/local-platform.ts';
import { ROOT, blocksOf } from '../support/markdown.ts';

const reason = whyNoLocal();

describe.skipIf(reason !== undefined)(`the README's tour${reason ? ` (skipped: ${reason})` : ''}`, () => {
  it('works from an empty data directory, and leaves nothing', { timeout: 180_000 }, async () => {
    const text = await readFile(join(ROOT, 'README.md'), 'utf8');
    const [tour] = blocksOf({ path: 'README.md', text }).filter(({ marks }) => marks.includes('tour'));
    const directory = await mkdtemp(join(tmpdir(), 'cay-readme-'));
    // Sandboxes pass through it with ids of their own.
    await chmod(directory, 0o711);
    const { CAY_URL: _, CAY_API_KEY: __, ...rest } = process.env;
    const env = { ...rest, CAY_DATA: join(directory, 'data'), CAY_LISTEN: '127.0.0.1:0', NO_COLOR: '1' };
    const bash = (code: string) =>
      ended(spawn('bash', ['-euo', 'pipefail', '-c', code], { cwd: ROOT, env, stdio: 'pipe' }));
    try {
      const { code, stdout, stderr } = await bash(tour!.code);
      expect({ code, stderr: code === 0 ? '' : stderr }).toEqual({ code: 0, stderr: '' });
      // What the file holds after the rollback.
      expect(stdout.split('\n')).toContain('one');
      expect(stdout).toContain('notes.txt');
    } finally {
      const { code, stderr } = await bash('./cay down --destroy --yes');
      await rm(directory, { recursive: true, force: true });
      expect({ code, stderr: code === 0 ? '' : stderr }).toEqual({ code: 0, stderr: '' });
    }
  });
});
