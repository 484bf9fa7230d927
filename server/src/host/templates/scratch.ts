/**
 * The template `scratch`: nothing but the directories, accounts and files that every sandbox needs. Builds
 * begin with it for images that bring all of their own.
 */
import { createHash } from 'node:crypto';
import { chmod, mkdir, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { withGroup, withUser } from '../images/accounts.ts';
import { DIRECTORIES } from '../images/sandbox-files.ts';
import type { IdMapping } from '../runtimes/runtime.ts';
import type { Snapshotter } from '../snapshots/snapshotter.ts';
import { USER } from '../sandbox-user.ts';
import { own } from './base.ts';
import { ETC_FILES } from './base-recipe.ts';
import type { PreparedTemplate, Template } from './template.ts';

/** No sandbox is made from it by name, and no list has it: there is nothing in it to run. */
export const SCRATCH = 'scratch';
const LAYOUT = 1;

export function scratchTemplate(): Template {
  const making = new Map<string, Promise<PreparedTemplate>>();
  return {
    name: SCRATCH,
    prepare(trees, ids) {
      const tree = `template-${SCRATCH}-${createHash('sha256')
        .update(JSON.stringify([LAYOUT, ids]))
        .digest('hex')
        .slice(0, 16)}`;
      let made = making.get(tree);
      if (!made) {
        made = make(trees, ids, tree).finally(() => making.delete(tree));
        making.set(tree, made);
      }
      return made;
    },
  };
}

async function make(trees: Snapshotter, ids: IdMapping, tree: string): Promise<PreparedTemplate> {
  const prepared = { tree, binds: [] };
  if ((await trees.list()).some(({ name, kind }) => name === tree && kind === 'committed')) return prepared;
  const build = `${tree}-build`;
  // An incomplete tree of a server that was killed.
  await trees.remove(build);
  const dir = await trees.prepare(build);
  for (const [path, mode] of [...DIRECTORIES, [USER.home.slice(1), 0o755] as const]) {
    await mkdir(join(dir, path), { recursive: true });
    // mkdir applies our umask.
    await chmod(join(dir, path), mode);
  }
  const files = {
    passwd: withUser('', { shell: '/bin/sh' }),
    group: withGroup(''),
    hosts: ETC_FILES['hosts'],
    'resolv.conf': ETC_FILES['resolv.conf'],
  };
  for (const [name, text] of Object.entries(files)) {
    await writeFile(join(dir, 'etc', name), text ?? '');
    await chmod(join(dir, 'etc', name), 0o644);
  }
  await own(dir, '/', ids);
  await trees.commit(tree, build);
  await trees.remove(build);
  return prepared;
}
