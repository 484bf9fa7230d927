import { CayError } from '@cay/sdk/protocol';
import type { HostResources } from '../host-resources.ts';
import { launchInstance, type Instance, type InstanceFacts, type InstanceLimits } from './instance.ts';

/**
 * Like `startInstance`, with the processes of an image. The tree is the one of the same moment, or a clone of
 * it. Resolves when the guest has dialled home on its own socket; on failure everything but the tree is taken
 * away again.
 */
export function reviveInstance(
  resources: HostResources,
  facts: InstanceFacts,
  limits: InstanceLimits,
  imageDir: string,
): Promise<Instance> {
  return launchInstance(resources, facts, limits, async ({ checkpoints, name }, container) => {
    if (!checkpoints) throw new CayError('unsupported', `Processes cannot be revived on ${name}`);
    await checkpoints.restore(container, imageDir);
  });
}
