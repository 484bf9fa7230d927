/**
 * The part of the host's `/etc` that a sandbox gets: configuration of the tools in `/usr`. Only listed names
 * are copied, and of those only what every user of the host may read.
 */
import { createHash } from 'node:crypto';
import { chmod, copyFile, lstat, mkdir, readdir, readlink, symlink } from 'node:fs/promises';
import { dirname, join } from 'node:path';

/** Files, links and directories below `/etc`; a `*` at the end stands for any rest of a name. */
export const HOST_ETC = [
  'ImageMagick-*',
  'alternatives',
  'ca-certificates',
  'ca-certificates.conf',
  'debian_version',
  'fonts',
  'gai.conf',
  'groff',
  'inputrc',
  'java-*',
  'ld.so.cache',
  'ld.so.conf',
  'ld.so.conf.d',
  'localtime',
  'locale.alias',
  'locale.gen',
  'magic',
  'magic.mime',
  'manpath.config',
  'mime.types',
  'networks',
  'os-release',
  'perl',
  'pki/ca-trust',
  'pki/java',
  'pki/tls/cert.pem',
  'pki/tls/certs',
  'protocols',
  'python3*',
  'rpc',
  'services',
  'ssl/cert.pem',
  'ssl/certs',
  'ssl/openssl.cnf',
  'terminfo',
  'timezone',
  'vim',
  'xattr.conf',
] as const;

interface Entry {
  path: string;
  kind: 'file' | 'directory' | 'link';
  mode: number;
  target?: string;
  stamp: string;
}

/** Parents come before what is in them. */
async function entries(): Promise<Entry[]> {
  const found = new Map<string, Entry>();
  for (const pattern of HOST_ETC) {
    for (const path of await expand(pattern)) {
      // `pki` of `pki/tls`: the parent, without its other entries.
      for (const parent of parents(path)) await note(found, parent, false);
      await note(found, path, true);
    }
  }
  return [...found.values()];
}

async function expand(pattern: string): Promise<string[]> {
  if (!pattern.endsWith('*')) return [pattern];
  const stem = pattern.slice(0, -1);
  return (await readdir('/etc')).filter((name) => name.startsWith(stem)).toSorted();
}

function parents(path: string): string[] {
  const parent = dirname(path);
  return parent === '.' ? [] : [...parents(parent), parent];
}

async function note(found: Map<string, Entry>, path: string, deep: boolean): Promise<void> {
  const full = join('/etc', path);
  const stat = await lstat(full).catch(() => undefined);
  if (stat === undefined || found.has(path)) return;
  const mode = stat.mode & 0o777;
  if (stat.isSymbolicLink()) {
    const target = await readlink(full);
    found.set(path, { path, kind: 'link', mode, target, stamp: target });
  } else if (stat.isFile() && (mode & 0o004) !== 0) {
    found.set(path, { path, kind: 'file', mode, stamp: `${stat.size}:${stat.mtimeMs}` });
  } else if (stat.isDirectory() && (mode & 0o005) === 0o005) {
    found.set(path, { path, kind: 'directory', mode, stamp: '' });
    if (deep) for (const name of (await readdir(full)).toSorted()) await note(found, join(path, name), true);
  }
}

/** Changes whenever the copied content or `recipe` changes. */
export async function fingerprint(recipe: unknown): Promise<string> {
  const hash = createHash('sha256').update(JSON.stringify(recipe));
  for (const { path, kind, mode, stamp } of await entries())
    hash.update(`${path}\0${kind}\0${mode}\0${stamp}\0`);
  return hash.digest('hex').slice(0, 16);
}

export async function copyHostEtc(to: string): Promise<void> {
  for (const { path, kind, mode, target } of await entries()) {
    const full = join(to, path);
    if (kind === 'link') await symlink(target ?? '', full);
    else if (kind === 'directory') await mkdir(full, { recursive: true });
    else await copyFile(join('/etc', path), full);
    if (kind !== 'link') await chmod(full, mode);
  }
}
