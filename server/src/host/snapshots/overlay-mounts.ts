import { mkdir, rmdir } from 'node:fs/promises';
import { join } from 'node:path';
import { resourceError } from '../resource-error.ts';
import { command } from './command.ts';
import { isMountPoint } from './mounts.ts';
import type { TreeRecord } from './records.ts';

/**
 * `nosuid` and `nodev`: files of a sandbox must not act as programs or devices on the host. `redirect_dir`
 * allows renaming a directory of a lower layer; the other options keep a layer usable below any other.
 */
export const FEATURES = 'nosuid,nodev,redirect_dir=on,index=off,metacopy=off';

interface OverlayMountsOptions {
  treesDir: string;
  mountsDir: string;
  recordOf(name: string): TreeRecord | undefined;
}

/** Whole trees, mounted from their layers. */
export function overlayMounts({ treesDir, mountsDir, recordOf }: OverlayMountsOptions) {
  /** Layers below a tree, the nearest first. */
  function chain(parent: string | undefined): string[] {
    const layers: string[] = [];
    for (let name = parent; name !== undefined;) {
      layers.push(name);
      const record: TreeRecord | undefined = recordOf(name);
      if (!record)
        throw resourceError(
          'internal',
          { kind: 'tree', name: parent! },
          (tree) => `Cannot stack ${tree}: its layer "${name}" is missing`,
        );
      name = record.flat ? undefined : record.parent;
    }
    return layers;
  }

  /** Mounts a whole tree and resolves with the mount point. */
  async function mount(name: string, { kind, parent }: TreeRecord): Promise<string> {
    const target = join(mountsDir, name);
    await mkdir(target, { recursive: true });
    if (await isMountPoint(target)) return target;
    // Overlayfs needs at least one layer below a writable one, and two if all are read-only.
    const layers = [...chain(kind === 'committed' ? name : parent).map((layer) => `${layer}/fs`), '../empty'];
    const upper = kind === 'committed' ? 'ro' : `upperdir=${name}/fs,workdir=${name}/work`;
    // Relative to the directory of trees, so that its path does not count for each layer.
    const data = `lowerdir=${layers.join(':')},${upper},${FEATURES}`;
    await command(['mount', '-t', 'overlay', '-o', data, 'overlay', target], { cwd: treesDir });
    return target;
  }

  async function unmount(key: string): Promise<void> {
    const target = join(mountsDir, key);
    while (await isMountPoint(target)) await command(['umount', target]);
    await rmdir(target).catch(() => {});
  }

  return { chain, mount, unmount };
}
