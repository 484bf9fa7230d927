/** Writes the manifests and the chart. */
import { mkdirSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { files } from './files.ts';

for (const [path, text] of Object.entries(files())) {
  const file = join(import.meta.dirname, path);
  mkdirSync(dirname(file), { recursive: true });
  writeFileSync(file, text);
}
