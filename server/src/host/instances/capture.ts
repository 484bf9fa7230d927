/** SnapshotRegistry what an instance is at one moment: its processes, its files, or both. */
import { CayError } from '@cay/sdk/protocol';
import type { HostResources } from '../host-resources.ts';
import { destroyInstance, freezeInstance, type Instance } from './instance.ts';

export interface CaptureOptions {
  /** Exists and is empty; has the processes' memory afterwards. */
  imageDir: string;
  /** Whether the instance goes on afterwards, or is ended: everything but the tree is then taken away. */
  goOn: boolean;
  /** Called while everything inside stands still and all that was written is in the tree. */
  whileStill(): Promise<void>;
}

/** How long calls that are under way may take before they are cut off. */
const DRAIN_MS = 2_000;
/**
 * Nobody can dial before the capture is done; after it this is what a guest waits for at most, also one that
 * is revived.
 */
const DIAL_AFTER_MS = 2;
/** A guest that goes on dials within milliseconds. */
const BACK_MS = 10_000;

/**
 * Puts the instance's processes on disk. Commands go on afterwards and can be read from where they were;
 * connections to ports end. On failure the instance goes on as before. Rejects `unsupported` where the
 * runtime cannot.
 */
export async function captureInstance(
  resources: HostResources,
  instance: Instance,
  options: CaptureOptions,
): Promise<void> {
  const { checkpoints, name } = instance.runtime;
  if (!checkpoints) throw new CayError('unsupported', `Processes cannot be kept on ${name}`);
  await instance.started;
  let { frozen } = instance;
  // The sandbox writes its own memory down.
  if (frozen) await freezeInstance(instance, false);
  try {
    const resume = await instance.link.quiesce({ drainMs: DRAIN_MS, dialAfterMs: DIAL_AFTER_MS });
    try {
      await checkpoints.capture(instance.facts.name, instance.cgroup, options);
      // Calls that came meanwhile find the link closed rather than a guest that never dials.
      if (!options.goOn) {
        frozen = false;
        await destroyInstance(resources, instance);
      }
    } finally {
      await resume();
    }
    if (options.goOn) await instance.link.ready({ timeoutMs: BACK_MS });
  } catch (error) {
    // A guest that went away while it was quiesced told nobody; it may never come back.
    if (!instance.link.current) instance.onLost();
    throw error;
  } finally {
    if (frozen) await freezeInstance(instance, true);
  }
}

/**
 * Resolves when everything that was written inside is in the tree on the host.
 *
 * It is there at once: processes under runc write to the host's own cache, and gVisor has a descriptor of the
 * host for each file and writes through it. The tests of this function hold every runtime to that.
 */
export async function syncInstance(_instance: Instance): Promise<void> {}
