import type { VolumeId } from '@cay/sdk/protocol';
import type { CallScope } from '../backend.ts';

/** A volume as its backend knows it. */
export interface VolumeFacts {
  id: VolumeId;
  /** It is a snapshot, which never changes. */
  readOnly: boolean;
  sizeBytes: number | null;
  /** What its files take; null where the platform does not count. */
  usedBytes: number | null;
}

export interface VolumeWish extends CallScope {
  /** Rejects `unsupported` for a number without the ability `volumeSize`. */
  sizeBytes: number | null;
  /** Begins with what this volume has now. Needs the ability `volumeCopies`. */
  from?: VolumeId;
  /** With `from`: a snapshot of it. */
  readOnly?: boolean;
  /** Of several backends as one: the member that makes it, unless `from` decides. Absent: the default. */
  platform?: string;
}

/**
 * Keeps volumes: directories that outlive sandboxes, and that a spec mounts by their id.
 *
 * **Terms.** A volume with `readOnly` is a *snapshot* of another: it never changes. Without it, one made
 * `from` another is a *clone*, which begins with its content.
 *
 * **Who calls.** The control plane alone: once for each verb of a client, and `listVolumes` at startup and
 * every minute. The control plane chooses ids, and knows names, projects and which sandbox mounts what. It
 * never runs two verbs on one volume at the same time. Every verb is idempotent and survives a crash: a
 * volume that was being made is absent afterwards, one that was being removed is removed.
 *
 * What happens to a sandbox (stop, rollback, fork, snapshot, hibernation) leaves its volumes alone. A mounted
 * volume shows what others write to it: at once on a shared kernel, and at the next open or read on gVisor.
 *
 * **Concurrency.** Verbs on different volumes run side by side, with starts of sandboxes that mount them.
 *
 * **Cost.** Where the storage copies instantly a clone takes milliseconds, elsewhere the time to copy all of
 * it.
 *
 *     const volumes = backend.ability('volumes');
 *     await volumes.createVolume(id, { project, sizeBytes: 1 << 30 });
 *     await backend.ensure(sandbox, { ...spec, mounts: [{ type: 'volume', volume: id, path: '/data' }] });
 *     await volumes.createVolume(copy, { project, sizeBytes: null, from: id });
 *     await volumes.removeVolume(id);                          // failed_precondition while it is mounted
 */
export interface VolumeKeeping {
  /**
   * The same id made in the same way resolves with what exists; in another way rejects `already_exists`.
   * Rejects `not_found` (of `from`), `unsupported`, `failed_precondition` (too small for what it begins
   * with), `resource_exhausted`.
   */
  createVolume(id: VolumeId, wish: VolumeWish): Promise<VolumeFacts>;
  /** Rejects `not_found`. */
  inspectVolume(id: VolumeId, scope?: CallScope): Promise<VolumeFacts>;
  /** Every volume that is complete, in no order, without what it uses. */
  listVolumes(scope?: CallScope): Promise<Omit<VolumeFacts, 'usedBytes'>[]>;
  /**
   * An absent one is done. Rejects `failed_precondition` with `details.sandboxes` while a sandbox mounts it.
   */
  removeVolume(id: VolumeId, scope?: CallScope): Promise<void>;
  /**
   * Both need the ability `volumeArchives`. All of it as a tar archive (POSIX pax), as it is when the first
   * byte is read. Rejects `not_found`.
   */
  exportVolume(id: VolumeId, scope?: CallScope): AsyncIterable<Uint8Array>;
  /** Makes a volume of an archive, completely or not at all. Rejects `invalid_argument` for a damaged one. */
  importVolume(id: VolumeId, wish: VolumeWish, archive: AsyncIterable<Uint8Array>): Promise<VolumeFacts>;
}
