import { rmdir } from 'node:fs/promises';
import { join } from 'node:path';
import { tryZfs, whenFree, zfs } from './datasets.ts';
import { isMountPoint } from './mounts.ts';

/**
 * Where the datasets below `base`, which is mounted at `home`, are mounted. A view shows a committed tree.
 */
export function zfsMounts(base: string, home: string) {
  const at = (dataset: string): string => join(home, dataset.slice(base.length + 1));
  const viewOf = (name: string): string => `${base}/v-${name}`;

  async function mount(dataset: string): Promise<string> {
    const path = at(dataset);
    if (await isMountPoint(path)) return path;
    const { exitCode } = await tryZfs('mount', dataset);
    if (exitCode !== 0 && !(await isMountPoint(path))) await whenFree('mount', dataset);
    return path;
  }

  async function unmount(dataset: string): Promise<void> {
    if (await isMountPoint(at(dataset))) await zfs('unmount', dataset);
    await rmdir(at(dataset)).catch(() => {});
  }

  async function dropView(name: string): Promise<void> {
    if (!(await isThere(viewOf(name)))) return;
    await unmount(viewOf(name));
    await whenFree('destroy', viewOf(name));
  }

  return { at, viewOf, mount, unmount, dropView };
}

export async function isThere(dataset: string): Promise<boolean> {
  return (await tryZfs('list', '-H', '-o', 'name', dataset)).exitCode === 0;
}
