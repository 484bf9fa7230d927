/** Writes docs/reference/api.md and docs/reference/errors.md. */
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { REFERENCE_DIR, references } from './references.ts';

for (const [name, text] of Object.entries(await references())) writeFileSync(join(REFERENCE_DIR, name), text);
