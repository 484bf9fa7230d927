/**
 * The template `base`: the machine's own toolchain, none of its data.
 *
 * `/usr` is mounted read-only. The rest is a new tree: an `/etc` that is partly written here and partly
 * copied from the host, from a list of names that are configuration of tools and never secrets; empty
 * `/home`, `/root`, `/tmp`, `/var`.
 */
import { existsSync, lstatSync, readlinkSync } from 'node:fs';
import { chmod, lchown, lstat, mkdir, readdir, symlink, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import type { IdMapping } from '../runtimes/runtime.ts';
import type { Snapshotter } from '../snapshots/snapshotter.ts';
import { DIRECTORIES, ETC_FILES, LINKS, TOP_LEVEL } from './base-recipe.ts';
import { copyHostEtc, fingerprint } from './host-etc.ts';
import type { PreparedTemplate, Template } from './template.ts';

export function baseTemplate(): Template {
  const making = new WeakMap<Snapshotter, Map<string, Promise<PreparedTemplate>>>();
  return {
    name: 'base',
    prepare: (trees, ids) => {
      const ofTrees = making.get(trees) ?? new Map<string, Promise<PreparedTemplate>>();
      making.set(trees, ofTrees);
      const key = `${ids.hostId}:${ids.size}`;
      const running = ofTrees.get(key);
      if (running !== undefined) return running;
      const work = make(trees, ids).finally(() => ofTrees.delete(key));
      ofTrees.set(key, work);
      return work;
    },
  };
}

async function make(trees: Snapshotter, ids: IdMapping): Promise<PreparedTemplate> {
  const { links, binds } = topLevel();
  const tree = `template-base-${await fingerprint([ids, links, binds, DIRECTORIES, LINKS, ETC_FILES])}`;
  const existing = await trees.list();
  if (existing.some(({ name, kind }) => name === tree && kind === 'committed')) return { tree, binds };
  const build = `${tree}-build`;
  // An incomplete tree of a server that was killed.
  await trees.remove(build);
  const dir = await trees.prepare(build);
  await fill(dir, links, binds);
  await own(dir, '/', ids);
  await trees.commit(tree, build);
  await trees.remove(build);
  return { tree, binds };
}

/** `/bin` and the like are links into `/usr` on most machines, and directories on others. */
function topLevel() {
  const links: [string, string][] = [];
  const binds: PreparedTemplate['binds'] = [];
  for (const name of TOP_LEVEL) {
    const path = `/${name}`;
    if (!existsSync(path)) continue;
    if (lstatSync(path).isSymbolicLink()) links.push([name, readlinkSync(path)]);
    else binds.push({ source: path, target: path, readOnly: true });
  }
  return { links, binds };
}

async function fill(dir: string, links: [string, string][], binds: PreparedTemplate['binds']): Promise<void> {
  for (const { target } of binds) await mkdir(join(dir, target));
  for (const [path, mode] of DIRECTORIES) {
    await mkdir(join(dir, path), { recursive: true });
    // mkdir applies our umask.
    await chmod(join(dir, path), mode);
  }
  for (const [path, target] of [...links, ...LINKS]) await symlink(target, join(dir, path));
  await copyHostEtc(join(dir, 'etc'));
  for (const [name, text] of Object.entries(ETC_FILES)) {
    await writeFile(join(dir, 'etc', name), text);
    await chmod(join(dir, 'etc', name), 0o644);
  }
  await chmod(dir, 0o755);
}

/** Everything belongs to root inside, the home directory to its user. */
export async function own(root: string, path: string, ids: IdMapping): Promise<void> {
  const full = join(root, path);
  const id = ids.hostId + (path === '/home/user' || path.startsWith('/home/user/') ? 1000 : 0);
  await lchown(full, id, id);
  const stat = await lstat(full);
  if (!stat.isDirectory()) return;
  for (const name of await readdir(full)) await own(root, join(path, name), ids);
}
