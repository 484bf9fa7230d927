/** Captures an instance at one moment: its memory, its files, or both. */
import { existsSync } from 'node:fs';
import { join } from 'node:path';
import { CayError } from '@cay/sdk/protocol';
import type { HostResources } from '../host-resources.ts';
import type { Checkpoints } from '../runtimes/runtime.ts';
import { destroyInstance, freezeInstance, guestOf, type Instance } from './instance.ts';
import { GUEST_FILE, keepGuest } from './kept-guest.ts';

export interface CaptureOptions {
  /** An empty directory; holds the memory image and the guest's program afterwards. */
  imageDir: string;
  /** True to continue the instance afterwards; false to end it and remove everything but the tree. */
  goOn: boolean;
  /** Called while all processes are stopped and all their writes are in the tree. */
  whileStill(): Promise<void>;
}

/** How long calls in progress may take before they are aborted. */
const DRAIN_MS = 2_000;
/**
 * The guest cannot reconnect before the capture is done. After it, captured and restored guests wait at most
 * this long.
 */
const DIAL_AFTER_MS = 2;
/** A guest that continues reconnects within milliseconds. */
const BACK_MS = 10_000;

/**
 * Writes the instance's processes to disk. Commands continue afterwards and can be read from where they were;
 * connections to ports end. On failure the instance continues. Rejects `unsupported` where the runtime cannot
 * capture.
 */
export async function captureInstance(
  resources: HostResources,
  instance: Instance,
  options: CaptureOptions,
): Promise<void> {
  const { checkpoints, name } = instance.runtime;
  if (!checkpoints) throw new CayError('unsupported', `Processes cannot be kept on ${name}`);
  await instance.started;
  await requireSameBuild(instance, checkpoints);
  const guest = guestOf(resources, instance);
  if (existsSync(guest)) await keepGuest(guest, join(options.imageDir, GUEST_FILE));
  let { frozen } = instance;
  // The processes of gVisor write the image, so they must run.
  if (frozen) await freezeInstance(instance, false);
  instance.parking?.hold();
  try {
    const resume = await instance.link.quiesce({ drainMs: DRAIN_MS, dialAfterMs: DIAL_AFTER_MS });
    try {
      await checkpoints.capture(instance.facts.name, instance.cgroup, options);
      // Pending calls find a closed link instead of waiting for a guest that never connects.
      if (!options.goOn) {
        frozen = false;
        await destroyInstance(resources, instance);
      }
    } finally {
      await resume();
    }
    if (options.goOn) await instance.link.ready({ timeoutMs: BACK_MS });
  } catch (error) {
    // A guest that went away while it was quiesced was not reported as lost.
    if (!instance.link.current) instance.onLost();
    throw error;
  } finally {
    instance.parking?.release();
    if (frozen) await freezeInstance(instance, true);
  }
}

/** The image of one build would be recorded as one of the other, and neither could restore it. */
async function requireSameBuild({ facts, called }: Instance, checkpoints: Checkpoints): Promise<void> {
  const here = await checkpoints.compatibility();
  if (facts.build === undefined || facts.build === here) return;
  throw new CayError(
    'failed_precondition',
    `Cannot keep the memory of "${called}": it was started by "${facts.build}", and here is "${here}"`,
    { hint: 'keep its files alone, or stop and start it', details: { reason: 'checkpoint_mismatch' } },
  );
}
