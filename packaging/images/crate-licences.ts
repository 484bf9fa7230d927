import { execFile } from 'node:child_process';
import { readdir, readFile } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';

const run = promisify(execFile);
const GUEST = fileURLToPath(new URL('../../guest', import.meta.url));
const MAX_BYTES = 64 * 1024 * 1024;

interface Package {
  name: string;
  version: string;
  manifest_path: string;
}

/** The licences of what is linked into the guest, as its authors want them to go with the program. */
export async function crateLicences(): Promise<{ path: string; mode: number; content: Buffer }[]> {
  const cargo = async (...args: string[]) =>
    (await run('cargo', [...args, '--locked'], { cwd: GUEST, maxBuffer: MAX_BYTES })).stdout;
  const [tree, metadata] = await Promise.all([
    cargo('tree', '--edges', 'normal', '--prefix', 'none', '--format', '{p}'),
    cargo('metadata', '--format-version', '1'),
  ]);
  // Such as "snow v0.10.0"; our own has its path besides.
  const linked = new Set(tree.split('\n').map((line) => line.split(' ').slice(0, 2).join(' ')));
  const { packages } = JSON.parse(metadata) as { packages: Package[] };
  const files = packages
    .filter(
      ({ name, version, manifest_path: path }) =>
        linked.has(`${name} v${version}`) && dirname(path) !== GUEST,
    )
    .map(async ({ name, version, manifest_path: path }) => {
      const found = (await readdir(dirname(path)))
        .filter((file) => /^(LICEN[CS]E|COPYRIGHT|NOTICE)/i.test(file))
        .toSorted();
      return Promise.all(
        found.map(async (file) => ({
          path: `licenses/${name}-${version}/${file}`,
          mode: 0o644,
          content: await readFile(join(dirname(path), file)),
        })),
      );
    });
  return (await Promise.all(files)).flat();
}
