/** One API over the backends of a real cluster and one that is not on it. */
import { newId, SandboxSpecSchema, type SandboxId } from '@cay/sdk/protocol';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { agentSandboxBackend } from '../../../server/src/backends/kubernetes/agent-sandbox/agent-sandbox.ts';
import { kubernetesJobBackend } from '../../../server/src/backends/kubernetes/job/kubernetes-job.ts';
import { memoryBackend } from '../../../server/src/backends/memory/memory.ts';
import { parsePlatformRules } from '../../../server/src/backends/composite/platform-rules.ts';
import { platformsBackend, type PlatformsBackend } from '../../../server/src/backends/composite/platforms.ts';
import { drain } from '../../conformance/box.ts';
import { kubectl, type Kubectl } from '../cluster/kubectl.ts';
import { BASE_IMAGE, GUEST_IMAGE } from '../cluster/sandbox-images.ts';
import { sharedCluster } from './shared-cluster.ts';

const { cluster, why } = await sharedCluster('the router on a cluster');

describe.skipIf(why !== undefined)('the router on a cluster', () => {
  const names = {
    jobs: `jobs-${newId('sbx').slice(4, 12)}`,
    sandboxes: `boxes-${newId('sbx').slice(4, 12)}`,
  };
  const spec = (platform: string) =>
    SandboxSpecSchema.parse({ platform, limits: { diskBytes: null, pids: null } });
  let api: Kubectl;
  let router: PlatformsBackend;

  beforeAll(async () => {
    api = await kubectl(cluster);
    for (const namespace of Object.values(names)) await api.createNamespace(namespace);
    router = await open();
  });
  afterAll(async () => {
    await router?.close();
    for (const namespace of Object.values(names)) await api?.remove(`/api/v1/namespaces/${namespace}`);
    api?.close();
  });

  function open(): Promise<PlatformsBackend> {
    const settings = {
      kubeconfig: cluster.kubeconfig,
      guestImage: GUEST_IMAGE,
      baseImage: BASE_IMAGE,
      pullPolicy: 'Never' as const,
    };
    return platformsBackend({
      platforms: [
        { name: 'here', open: async () => memoryBackend() },
        { name: 'jobs', open: () => kubernetesJobBackend({ ...settings, namespace: names.jobs }) },
        { name: 'sandboxes', open: () => agentSandboxBackend({ ...settings, namespace: names.sandboxes }) },
      ],
      rules: parsePlatformRules('batch=true:jobs'),
    });
  }

  async function run(id: SandboxId, from = router): Promise<number | undefined> {
    const guest = await from.connect(id);
    return (
      await drain(await guest.exec({ id: newId('sbx'), argv: ['true'], env: {}, workdir: '/', user: 'user' }))
    ).exitCode;
  }

  it('makes each sandbox on the platform that was chosen, and finds it there from the next server too', async () => {
    expect(router.platforms.choose({ labels: { batch: 'true' } })).toBe('jobs');
    expect(router.platforms.choose({ labels: {} })).toBe('here');
    const made = new Map<string, SandboxId>();
    for (const platform of router.platforms.names) {
      const id = newId('sbx');
      await router.ensure(id, platform === 'here' ? SandboxSpecSchema.parse({ platform }) : spec(platform));
      expect(await run(id)).toBe(0);
      made.set(platform, id);
    }
    expect(await api.pods(names.jobs, made.get('jobs')!)).toHaveLength(1);
    expect(await api.pods(names.sandboxes, made.get('sandboxes')!)).toHaveLength(1);
    expect((await router.list()).map(({ id }) => id).toSorted()).toEqual([...made.values()].toSorted());

    const next = await open();
    for (const platform of ['jobs', 'sandboxes']) expect(await run(made.get(platform)!, next)).toBe(0);
    await next.freeze(made.get('jobs')!);
    await expect(next.freeze(made.get('sandboxes')!)).rejects.toMatchObject({
      code: 'unsupported',
      details: { platform: 'sandboxes' },
    });
    for (const platform of ['jobs', 'sandboxes']) await next.remove(made.get(platform)!);
    await next.close();
    for (const namespace of Object.values(names)) expect(await api.names(namespace)).toEqual([]);
  });

  it('says beforehand what a platform cannot honour', async () => {
    // The disk of a pod can be limited; the number of its processes cannot, on plain Linux.
    const greedy = SandboxSpecSchema.parse({ limits: { diskBytes: 1024 ** 3, pids: 64 } });
    await expect(router.validate({ ...greedy, platform: 'jobs' })).rejects.toMatchObject({
      code: 'unsupported',
    });
    const { platforms } = await router.capabilities();
    expect(platforms?.map(({ name, capabilities }) => [name, capabilities?.backend])).toEqual([
      ['here', 'memory'],
      ['jobs', 'kubernetes-job'],
      ['sandboxes', 'agent-sandbox'],
    ]);
  });
});
