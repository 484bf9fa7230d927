import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { REFERENCE_DIR, references } from '../../scripts/references.ts';

const wanted = await references();

describe('the generated references', () => {
  it.each(Object.keys(wanted))(
    'are current; "node scripts/generate-api-reference.ts" makes them so: %s',
    async (name) => {
      expect(await readFile(join(REFERENCE_DIR, name), 'utf8')).toBe(wanted[name]);
    },
  );
});
