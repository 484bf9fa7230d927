/** Writes docs/reference/cli.md from the command line's own tree. */
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { referenceText } from '../server/src/cli/lib/reference-text.ts';

writeFileSync(join(import.meta.dirname, '../docs/reference/cli.md'), await referenceText());
