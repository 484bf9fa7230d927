import { readFile, readdir, realpath, stat, statfs } from 'node:fs/promises';
import { basename, dirname, join } from 'node:path';

export interface Mount {
  path: string;
  type: string;
  source: string;
  /** Options of this mount alone, such as `nosuid`; not those of its filesystem. */
  options: string[];
}

/** The mounts of this process's namespace, in the order they were made. */
export async function listMounts(): Promise<Mount[]> {
  const text = await readFile('/proc/self/mountinfo', 'utf8');
  return text
    .split('\n')
    .filter((line) => line !== '')
    .map((line) => {
      const fields = line.split(' ');
      const rest = fields.indexOf('-');
      return {
        path: unescape(fields[4]!),
        type: fields[rest + 1]!,
        source: unescape(fields[rest + 2]!),
        options: fields[5]!.split(','),
      };
    });
}

/** The mount that holds a resolved path. */
export async function mountOf(path: string): Promise<Mount | undefined> {
  const over = (await listMounts()).filter(
    ({ path: at }) => path === at || at === '/' || path.startsWith(`${at}/`),
  );
  // Of two mounts at one place the later hides the earlier.
  return over.reduce<Mount | undefined>(
    (best, mount) => (best && best.path.length > mount.path.length ? best : mount),
    undefined,
  );
}

/** True if `path` is a mount point. Cheaper than reading all mounts. */
export async function isMountPoint(path: string): Promise<boolean> {
  try {
    const [here, above] = await Promise.all([stat(path), stat(dirname(path))]);
    return here.dev !== above.dev;
  } catch {
    return false;
  }
}

/** The sysfs directory of the btrfs filesystem that holds `path`. */
export async function sysfsOf(path: string): Promise<string | undefined> {
  const mount = await mountOf(await realpath(path));
  if (mount?.type !== 'btrfs') return undefined;
  const device = basename(await realpath(mount.source).catch(() => mount.source));
  for (const id of await readdir('/sys/fs/btrfs').catch(() => [])) {
    const devices: string[] = await readdir(join('/sys/fs/btrfs', id, 'devices')).catch(() => []);
    if (devices.includes(device)) return join('/sys/fs/btrfs', id);
  }
  return undefined;
}

/** Loop devices backed by `file`, which must be a resolved path. */
export async function loopsOf(file: string): Promise<string[]> {
  const found: string[] = [];
  for (const name of await readdir('/sys/block').catch(() => [])) {
    if (!/^loop\d+$/.test(name)) continue;
    const backing = await readFile(join('/sys/block', name, 'loop/backing_file'), 'utf8').catch(() => '');
    if (backing.trimEnd() === file) found.push(`/dev/${name}`);
  }
  return found;
}

/** The kernel writes space, tab, newline and backslash in octal. */
function unescape(text: string): string {
  return text.replace(/\\([0-7]{3})/g, (_, octal: string) => String.fromCharCode(Number.parseInt(octal, 8)));
}

/** Size of the filesystem that holds `path`, and the part of it that the server can still use. */
export async function diskSpace(path: string): Promise<{ totalBytes: number; freeBytes: number }> {
  const { bsize, blocks, bavail } = await statfs(path);
  return { totalBytes: bsize * blocks, freeBytes: bsize * bavail };
}
