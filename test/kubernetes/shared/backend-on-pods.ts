import { afterAll, beforeAll, describe, it } from 'vitest';
import { backendSuite } from '../../conformance/backend-suite.ts';
import { kubectl, type Kubectl } from '../cluster/kubectl.ts';
import { holdsToItsCores, podPlatform, SKIPPED, SKIPPED_ON_GVISOR, type Opening } from './pod-platform.ts';
import { sharedCluster } from './shared-cluster.ts';

/** Holds a backend to the contract, in pods of the default runtime or of gVisor. */
export async function backendOnPods(name: string, opening: Opening, runtimeClass?: 'gvisor'): Promise<void> {
  const { cluster, why, whyNoGvisor } = await sharedCluster(name);
  const skipped = runtimeClass === undefined ? why : (why ?? whyNoGvisor);
  const title = runtimeClass === undefined ? name : `${name} on gVisor`;
  describe.skipIf(skipped !== undefined)(`${title}, in pods`, () => {
    let api: Kubectl;
    beforeAll(async () => {
      api = await kubectl(cluster);
    });
    afterAll(() => api?.close());
    const platform = () => podPlatform(cluster, api, opening, runtimeClass);

    it('holds a sandbox to its cores, as the node counts it', async () =>
      holdsToItsCores(cluster, api, await platform()));
    backendSuite(title, platform, {
      sandboxes: runtimeClass === undefined ? 20 : 10,
      skip: runtimeClass === undefined ? SKIPPED : SKIPPED_ON_GVISOR,
    });
  });
}
