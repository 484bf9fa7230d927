import { CayError, type Mount, type SandboxSpec, type VolumeId } from '@cay/sdk/protocol';
import { requireHostPath } from '../../policy/allow-host-path.ts';
import type { Policy } from '../../policy/policy.ts';
import type { VolumeFacts, VolumeKeeping } from '../backend.ts';
import { requireVolumeId, requireWanted } from '../support/check.ts';
import { copyTree } from './copy-tree.ts';
import { newDirectory, type Directory } from './file-node.ts';
import { fileTree, partsOf, type FileTree, type Mounted } from './file-tree.ts';
import type { MemorySandbox } from './memory-sandbox.ts';
import { packTree } from './tar-pack.ts';
import { unpackTree } from './tar-unpack.ts';
import { ROOT } from './users.ts';

interface MemoryVolume extends Pick<VolumeFacts, 'id' | 'readOnly' | 'sizeBytes'> {
  tree: FileTree;
  from: VolumeId | undefined;
}

/** Volumes are trees of their own, which sandboxes show in theirs. */
export interface MemoryVolumes extends VolumeKeeping {
  /** Rejects what cannot be mounted. */
  validate(spec: SandboxSpec): void;
  mount(tree: FileTree, spec: SandboxSpec): void;
  unmount(tree: FileTree): void;
}

/** Why no bucket is mounted. */
export const NO_BUCKETS = 'Nothing is mounted in memory: use copies of buckets';

const OWNER = { uid: 1000, gid: 1000 };

export function memoryVolumes(
  sandboxes: ReadonlyMap<string, Pick<MemorySandbox, 'spec'>>,
  policy: Policy,
): MemoryVolumes {
  const volumes = new Map<VolumeId, MemoryVolume>();

  function get(id: VolumeId): MemoryVolume {
    requireVolumeId(id);
    const volume = volumes.get(id);
    if (volume) return volume;
    throw new CayError('not_found', `Volume "${id}" does not exist`, { details: { what: 'volume' } });
  }

  const factsOf = ({ id, readOnly, sizeBytes, tree }: MemoryVolume): VolumeFacts => ({
    id,
    readOnly,
    sizeBytes,
    usedBytes: tree.usedBytes,
  });

  function add(
    id: VolumeId,
    tree: FileTree,
    { sizeBytes, from, readOnly = false }: Parameters<VolumeKeeping['createVolume']>[1],
  ): VolumeFacts {
    if (sizeBytes !== null && tree.usedBytes > sizeBytes)
      throw new CayError(
        'failed_precondition',
        `Cannot make a volume of ${sizeBytes} bytes: what it begins with takes ${tree.usedBytes}`,
      );
    tree.limitBytes = sizeBytes;
    const volume = { id, readOnly, sizeBytes, from, tree };
    volumes.set(id, volume);
    return factsOf(volume);
  }

  /** What a mount shows, which is made where it may be. */
  function rootOf(mount: Mount): Pick<Mounted, 'root' | 'tree' | 'readOnly'> {
    if (mount.type !== 'volume') {
      const tree = fileTree(
        newDirectory({ uid: 0, gid: 0 }, mount.type === 'tmpfs' ? parseInt(mount.mode, 8) : 0o755),
      );
      if (mount.type === 'tmpfs') tree.limitBytes = mount.sizeBytes ?? null;
      return { root: tree.root, tree, readOnly: mount.type === 'host' && mount.readOnly };
    }
    const { tree } = get(mount.volume as VolumeId);
    const { subpath, readOnly } = mount;
    if (subpath === undefined) return { root: tree.root, tree, readOnly };
    return { root: descend(tree.root, subpath, !readOnly), tree, readOnly };
  }

  return {
    async createVolume(id, wish) {
      requireWanted(wish.signal);
      requireVolumeId(id);
      const { from, readOnly = false, sizeBytes } = wish;
      const known = volumes.get(id);
      if (known) {
        if (known.from === from && known.readOnly === readOnly && known.sizeBytes === sizeBytes)
          return factsOf(known);
        throw new CayError('already_exists', `Volume "${id}" exists already`);
      }
      if (readOnly && from === undefined)
        throw new CayError('invalid_argument', `Cannot make volume "${id}" read-only: it would stay empty`);
      if (from === undefined) return add(id, fileTree(newDirectory(OWNER, 0o777)), wish);
      const source = get(from);
      if (readOnly && source.readOnly)
        throw new CayError('invalid_argument', `Volume "${from}" is a snapshot already`);
      return add(id, copyTree(source.tree), wish);
    },

    inspectVolume: async (id) => factsOf(get(id)),

    listVolumes: async () =>
      [...volumes.values()].map(({ id, readOnly, sizeBytes }) => ({ id, readOnly, sizeBytes })),

    async removeVolume(id, { signal } = {}) {
      requireWanted(signal);
      requireVolumeId(id);
      const mounting = [...sandboxes]
        .filter(([, { spec }]) => spec.mounts?.some((each) => each.type === 'volume' && each.volume === id))
        .map(([sandbox]) => sandbox);
      if (mounting.length > 0)
        throw new CayError(
          'failed_precondition',
          `Cannot remove volume "${id}": ${mounting.length} sandboxes mount it`,
          { details: { sandboxes: mounting } },
        );
      volumes.delete(id);
    },

    async *exportVolume(id) {
      yield* packTree(copyTree(get(id).tree), ROOT, '/');
    },

    async importVolume(id, wish, archive) {
      requireWanted(wish.signal);
      requireVolumeId(id);
      if (volumes.has(id)) throw new CayError('already_exists', `Volume "${id}" exists already`);
      const tree = fileTree(newDirectory(OWNER, 0o777));
      tree.limitBytes = wish.sizeBytes;
      await unpackTree(tree, { ...OWNER, name: 'user', home: '/home/user' }, '/', archive);
      return add(id, tree, wish);
    },

    validate({ mounts = [] }) {
      for (const mount of mounts) {
        if (mount.type === 'host') requireHostPath(policy, mount.source, mount.readOnly);
        if (mount.type === 'bucket') throw new CayError('unsupported', NO_BUCKETS);
        if (mount.type !== 'volume') continue;
        const { readOnly } = get(mount.volume as VolumeId);
        if (readOnly && !mount.readOnly)
          throw new CayError(
            'failed_precondition',
            `Cannot mount "${mount.volume}" to be written: it is a snapshot`,
          );
      }
    },

    mount(tree, { mounts = [] }) {
      const wanted = mounts.map((mount) => ({ path: mount.path, ...rootOf(mount) }));
      for (const { path, ...mounted } of wanted) {
        const covered = descend(tree.root, path, true);
        const parent = descend(tree.root, path.slice(0, path.lastIndexOf('/')), true);
        parent.entries.set(path.slice(path.lastIndexOf('/') + 1), mounted.root);
        tree.mounts.set(path, { ...mounted, covered });
      }
    },

    unmount(tree) {
      for (const [path, { covered }] of tree.mounts) {
        const parent = descend(tree.root, path.slice(0, path.lastIndexOf('/')), false);
        parent.entries.set(path.slice(path.lastIndexOf('/') + 1), covered);
      }
      tree.mounts.clear();
    },
  };
}

/** Goes down without following a symlink. Directories that are missing are made if `makes`. */
function descend(root: Directory, path: string, makes: boolean): Directory {
  let here = root;
  for (const name of partsOf(path)) {
    const next = here.entries.get(name) ?? (makes ? newDirectory(here, here.mode) : undefined);
    if (next?.type !== 'directory')
      throw new CayError(
        'failed_precondition',
        `Cannot mount something at "${path}": "${name}" is no directory`,
      );
    here.entries.set(name, next);
    here = next;
  }
  return here;
}
