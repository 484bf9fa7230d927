/**
 * Writes the images of server and guest, without a daemon: `node packaging/images/build.ts [--out DIR] [--tag
 * TAG] [--repository NAME]`. Prints the file, the name and the digest of each.
 */
import { mkdir, readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { parseArgs } from 'node:util';
import { writeGuestImage } from './guest-image.ts';
import { writeServerImage } from './server-image.ts';

const { version } = JSON.parse(
  await readFile(new URL('../../server/package.json', import.meta.url), 'utf8'),
) as { version: string };
const { values } = parseArgs({
  options: {
    out: { type: 'string', default: 'images' },
    tag: { type: 'string', default: version },
    repository: { type: 'string', default: 'cay' },
  },
});
await mkdir(values.out, { recursive: true });
for (const [part, write] of Object.entries({ server: writeServerImage, guest: writeGuestImage })) {
  const file = join(values.out, `cay-${part}.tar`);
  const name = `${values.repository}/${part}:${values.tag}`;
  process.stdout.write(`${file} ${name} ${await write(file, { name, compress: true })}\n`);
}
