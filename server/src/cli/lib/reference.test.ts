import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { referenceText } from './reference-text.ts';

const FILE = join(import.meta.dirname, '../../../../docs/reference/cli.md');

describe('docs/reference/cli.md', () => {
  it('is what the command line says of itself; "node scripts/write-cli-reference.ts" makes it so', async () => {
    expect(await readFile(FILE, 'utf8')).toBe(await referenceText());
  });
});
