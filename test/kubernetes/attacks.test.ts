/** What code in a pod, and whoever asks for one, try against the node, its neighbours and the cluster, on a real one. */
import { newId, SandboxSpecSchema, type SandboxId, type SandboxSpecInput } from '@cay/sdk/protocol';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import type { Backend } from '../../server/src/backends/backend.ts';
import { kubernetesJobBackend } from '../../server/src/backends/kubernetes-job/kubernetes-job.ts';
import type { KubernetesSettings } from '../../server/src/backends/kubernetes/settings.ts';
import { drain, until } from '../conformance/box.ts';
import { startCluster, whyNoCluster, type Cluster } from './cluster/cluster.ts';
import { kubectl, type Kubectl } from './cluster/kubectl.ts';
import { BASE_IMAGE, GUEST_IMAGE, importSandboxImages } from './cluster/sandbox-images.ts';

const why = await whyNoCluster('full');
if (why !== undefined) console.info(`attacks of pods: skipped: ${why}`);

const MiB = 1024 * 1024;
const installation = 'attacked';
/** The kubelet looks every ten seconds at what it knows, and that is as old as it is told to be. */
const EVICTION_MS = 90_000;

describe.skipIf(why !== undefined)('attacks of pods', () => {
  let cluster: Cluster;
  let api: Kubectl;
  const opened: Backend[] = [];

  beforeAll(async () => {
    cluster = await startCluster('full', { diskSeconds: 2 });
    api = await kubectl(cluster);
    await importSandboxImages(cluster);
  });
  afterAll(async () => {
    for (const backend of opened) await backend.close();
    api?.close();
    await cluster?.stop();
  });

  async function open(namespace: string, more: Partial<KubernetesSettings> = {}): Promise<Backend> {
    const images = { guestImage: GUEST_IMAGE, baseImage: BASE_IMAGE, pullPolicy: 'Never' as const };
    const backend = await kubernetesJobBackend({ kubeconfig: cluster.kubeconfig, namespace, installation, ...images, ...more });
    opened.push(backend);
    return backend;
  }

  const specOf = ({ limits, ...more }: SandboxSpecInput = {}) =>
    SandboxSpecSchema.parse({ ...more, limits: { cpus: 0.5, memoryBytes: 128 * MiB, pids: null, ...limits } });

  async function make(backend: Backend, spec?: SandboxSpecInput): Promise<SandboxId> {
    const id = newId('sbx');
    await backend.ensure(id, specOf(spec));
    return id;
  }

  async function run(backend: Backend, id: SandboxId, shell: string) {
    const guest = await backend.connect(id);
    return drain(await guest.exec({ id: newId('cmd'), shell, env: {}, workdir: '/', user: 'user' }));
  }

  describe('on the disk of the node', () => {
    it.each([
      ['one directory', 'head -c 96M /dev/zero > /tmp/big'],
      ['several, each within the limit', 'for place in /tmp /home/user /var/tmp /run; do head -c 40M /dev/zero > $place/big; done'],
      ['the file for the last words of a container', 'head -c 96M /dev/zero > /dev/termination-log'],
      ['what the node keeps of its output', 'head -c 96M /dev/zero | tr "\\0" x > /proc/1/fd/1'],
    ])(
      'one that fills %s is evicted or refused, and its neighbour is not',
      async (_, shell) => {
        const backend = await open('disk', { tenancy: { pods: 9 } });
        const limits = { diskBytes: 64 * MiB };
        const [greedy, neighbour] = await Promise.all([make(backend, { limits }), make(backend, { limits })]);
        await run(backend, neighbour, 'head -c 16M /dev/zero > /tmp/kept');
        const ran = await run(backend, greedy, shell).catch((error: unknown) => error as Error);
        console.info(JSON.stringify(ran).slice(0, 500), await run(backend, greedy, 'df -h; ls -la /dev /proc/1/fd; ls -la /tmp').catch(String));
        await until('it has failed', async () => (await backend.observe(greedy)).phase === 'failed', EVICTION_MS);
        console.info(await backend.observe(greedy));
        expect(await backend.observe(neighbour)).toMatchObject({ phase: 'ready' });
        expect((await run(backend, neighbour, 'wc -c < /tmp/kept')).stdout).toBe('16777216\n');
        await Promise.all([greedy, neighbour].map((id) => backend.remove(id)));
      },
      180_000,
    );
  });
});
