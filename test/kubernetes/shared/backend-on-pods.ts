import { newId, SandboxSpecSchema } from '@cay/sdk/protocol';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { backendSuite } from '../../conformance/backend-suite.ts';
import { drain } from '../../conformance/box.ts';
import { egressSuite } from '../../conformance/egress.ts';
import { kubectl, type Kubectl } from '../cluster/kubectl.ts';
import { holdsToItsCores, podPlatform, SKIPPED, SKIPPED_ON_GVISOR, type Opening } from './pod-platform.ts';
import { sharedCluster } from './shared-cluster.ts';

/** The guest listens, the image of the tests has Python and no other client, and the cluster gives a card. */
const EGRESS_OF_PODS = { any: false, clients: false, oneUser: true, card: true };

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
    it('gives the environment of the image to commands, below their own', async () => {
      const { backend, spec, cleanup } = await platform();
      try {
        const id = newId('sbx');
        await backend.ensure(id, SandboxSpecSchema.parse(spec));
        const command = { shell: 'echo $OF_THE_IMAGE $HOME', workdir: '/', user: 'user' };
        const said = async (env: Record<string, string>) =>
          (await drain(await (await backend.connect(id)).exec({ ...command, id: newId('cmd'), env }))).stdout;
        expect(await said({})).toBe('yes /home/user\n');
        expect(await said({ OF_THE_IMAGE: 'no' })).toBe('no /home/user\n');
        await backend.remove(id);
      } finally {
        await cleanup?.();
      }
    });
    describe('egress', () => {
      egressSuite(async (egress) => {
        const made = await podPlatform(
          cluster,
          api,
          (settings) => opening({ ...settings, egress }),
          runtimeClass,
        );
        return {
          backend: made.backend,
          spec: SandboxSpecSchema.parse(made.spec),
          restart: made.restart!,
          cleanup: made.cleanup!,
        };
      }, EGRESS_OF_PODS);
    });
    backendSuite(title, platform, {
      sandboxes: runtimeClass === undefined ? 20 : 10,
      skip: runtimeClass === undefined ? SKIPPED : SKIPPED_ON_GVISOR,
    });
  });
}
