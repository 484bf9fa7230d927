/**
 * Volumes of this machine: directories of their own that outlive sandboxes.
 *
 * **Terms.** A *volume* is an active tree of the snapshotter. A *snapshot* of one is a committed tree, which
 * never changes. A *clone* is a volume that begins with the content of another. Where the storage copies
 * instantly (btrfs, ZFS) both take milliseconds whatever the size is.
 *
 * **Ids.** Files are stored as the ids that trees of sandboxes are stored as. Every instance mounts a volume
 * with its own range of ids, so that sandboxes of different ranges agree on who owns a file.
 *
 * **Size.** A volume's size bounds what is written to it, where the storage has quotas. A clone counts what
 * it began with as used, also after it was deleted there.
 *
 * **Who calls it, how often.** The local backend: once for each verb of a client, `get` for each start of a
 * sandbox that mounts one, `list` at startup and every minute.
 *
 * **Concurrency and crashes.** Verbs on one volume run one after the other. Each records what it is about to
 * make, and can be repeated; a store that opens undoes what was being made and finishes what was being
 * removed.
 *
 * **Errors.** Those of `backends/abilities/volumes.ts`, which this carries out on the local backend.
 *
 *     const volumes = await openVolumeStore({ dir, trees, ids, guestBinary });
 *     const data = await volumes.create('vol_1', { sizeBytes: 1 << 30 });
 *     const source = await volumes.path(data);                 // what `on-tree` mounts
 *     await volumes.create('vol_2', { sizeBytes: null, from: 'vol_1', readOnly: true });
 *     await volumes.remove('vol_1');                           // its tree stays until the snapshot has gone
 */
import type { VolumeId } from '@cay/sdk/protocol';

export interface HostVolume {
  readonly id: VolumeId;
  /** Its tree: active, or committed if it is a snapshot. */
  readonly tree: string;
  readonly readOnly: boolean;
  readonly sizeBytes: number | null;
}

export interface VolumeWish {
  sizeBytes: number | null;
  /** Begins with what this volume has now. */
  from?: VolumeId | undefined;
  /** With `from`: a snapshot. */
  readOnly?: boolean | undefined;
  signal?: AbortSignal | undefined;
}

export interface VolumeStore {
  /** Whether a size is enforced here. */
  readonly limits: boolean;
  get(id: VolumeId): HostVolume | undefined;
  list(): HostVolume[];
  /**
   * Makes a volume, or resolves the one that exists if it was made in the same way. Rejects `already_exists`,
   * `not_found` (of `from`), `unsupported` (a size that cannot be enforced), `failed_precondition` (a size
   * that is less than what `from` has), `resource_exhausted`.
   */
  create(id: VolumeId, wish: VolumeWish): Promise<HostVolume>;
  /** The same with the content of a tar archive, completely or not at all. The archive is hostile. */
  import(id: VolumeId, wish: VolumeWish, archive: AsyncIterable<Uint8Array>): Promise<HostVolume>;
  /** A tar archive of what the volume has now. Rejects `not_found`. */
  export(id: VolumeId, options?: { signal?: AbortSignal | undefined }): AsyncIterable<Uint8Array>;
  /** What its files take, or null where the storage does not count. Cheap. */
  usedBytes(id: VolumeId): Promise<number | null>;
  /** The directory of the volume on the host, for a mount. Rejects `not_found`. */
  path(volume: Pick<HostVolume, 'tree' | 'readOnly'>): Promise<string>;
  /** An absent one is done. The caller knows that nothing has it mounted. */
  remove(id: VolumeId): Promise<void>;
  /** Finishes removals that waited for clones. Resolves the names of trees that no volume has. */
  orphans(): Promise<string[]>;
}
