import { existsSync } from 'node:fs';
import { join } from 'node:path';
import { CayError } from '@cay/sdk/protocol';
import type { HostResources } from '../host-resources.ts';
import { launchInstance, type Instance, type InstanceFacts, type InstanceLimits } from './instance.ts';
import { GUEST_FILE } from './kept-guest.ts';

/**
 * Like `startInstance`, with the processes of a memory image. The tree is the one committed with it, or a
 * copy. Resolves when the guest has connected to its own socket; on failure everything but the tree is
 * removed.
 */
export function reviveInstance(
  resources: HostResources,
  facts: InstanceFacts,
  limits: InstanceLimits,
  imageDir: string,
): Promise<Instance> {
  const kept = join(imageDir, GUEST_FILE);
  return launchInstance(resources, facts, limits, {
    // An image of an earlier version of the server has none. Then its guest may be this server's.
    guestBinary: existsSync(kept) ? kept : resources.guestBinary,
    full: true,
    async launch({ checkpoints, name }, container) {
      if (!checkpoints) throw new CayError('unsupported', `Processes cannot be revived on ${name}`);
      await checkpoints.restore(container, imageDir);
    },
  });
}
