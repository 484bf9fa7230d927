/** The backend on a real cluster, in pods of the default runtime and of gVisor. */
import { newId, SandboxSpecSchema, type SandboxId } from '@cay/sdk/protocol';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import type { Backend } from '../../server/src/backends/backend.ts';
import { kubernetesJobBackend } from '../../server/src/backends/kubernetes-job/kubernetes-job.ts';
import { backendSuite, type Ground } from '../conformance/backend-suite.ts';
import { startCluster, whyNoCluster, type Cluster } from './cluster/cluster.ts';
import { kubectl, type Kubectl } from './cluster/kubectl.ts';
import { BASE_IMAGE, GUEST_IMAGE, importSandboxImages } from './cluster/sandbox-images.ts';

const why = await whyNoCluster('full');
if (why !== undefined) console.info(`kubernetes-job: skipped: ${why}`);
const whyNoGvisor = why ?? (await whyNoCluster('full', { gvisor: true }));
if (whyNoGvisor !== why) console.info(`kubernetes-job on gVisor: skipped: ${whyNoGvisor}`);

/** What no pod can be asked for, with the reason. */
const SKIPPED = {
  'there is no network interface but lo': 'a pod has a card of the cluster; a NetworkPolicy closes it',
};
const SKIPPED_ON_GVISOR = {
  ...SKIPPED,
  'PID 1 cannot be killed from inside': 'everybody in a pod is one user, and gVisor does not shield PID 1 as Linux does',
};

describe.skipIf(why !== undefined)('kubernetes-job', () => {
  let cluster: Cluster;
  let api: Kubectl;

  beforeAll(async () => {
    cluster = await startCluster('full');
    api = await kubectl(cluster);
    await importSandboxImages(cluster);
    if (cluster.whyNoGvisor === undefined) await api.createRuntimeClass('gvisor');
  });

  afterAll(async () => {
    api?.close();
    await cluster?.stop();
  });

  async function ground(runtimeClass?: string): Promise<Ground> {
    const namespace = `suite-${newId('sbx').slice(4, 12)}`;
    await api.createNamespace(namespace);
    const settings = { kubeconfig: cluster.kubeconfig, namespace, guestImage: GUEST_IMAGE, baseImage: BASE_IMAGE, runtimeClass };
    const open = (): Promise<Backend> => kubernetesJobBackend({ ...settings, pullPolicy: 'Never' });
    const made: Ground = {
      backend: await open(),
      spec: { limits: { diskBytes: null, ...(runtimeClass === undefined && { pids: null }) } },
      restart: open,
      crash: (id) => crash(namespace, id),
      hostPaths: [cluster.directory],
      leftovers: () => api.names(namespace),
      async cleanup() {
        await made.backend.close();
        await api.remove(`/api/v1/namespaces/${namespace}`);
      },
    };
    return made;
  }

  /** Ends the first process of the sandbox's container from the node. */
  async function crash(namespace: string, id: SandboxId): Promise<void> {
    const [container] = await api.containers(namespace, id);
    await cluster.ctr('tasks', 'kill', '-s', 'SIGKILL', container!);
  }

  /** gVisor's own count is not to be relied on while a limit holds it back, and is all that the backend can see. */
  async function holdsToItsCores(runtimeClass?: string): Promise<void> {
    const { backend, spec, cleanup } = await ground(runtimeClass);
    try {
      const id = newId('sbx');
      await backend.ensure(id, SandboxSpecSchema.parse({ ...spec, limits: { ...spec?.limits, cpus: 0.5 } }));
      const guest = await backend.connect(id);
      const busy = { shell: 'while :; do :; done', env: {}, workdir: '/', user: 'user' };
      for (const command of ['one', 'other']) await guest.exec({ ...busy, id: command });
      const [before, at] = [cluster.cpuUsageMs(), performance.now()];
      await new Promise((resolve) => setTimeout(resolve, 2000));
      expect((cluster.cpuUsageMs() - before) / (performance.now() - at)).toBeLessThan(0.8);
      await backend.remove(id);
    } finally {
      await cleanup();
    }
  }

  describe('in pods of the default runtime', () => {
    it('holds a sandbox to its cores, as the node counts it', () => holdsToItsCores());
    backendSuite('kubernetes-job', () => ground(), { sandboxes: 20, skip: SKIPPED });
  });

  describe.skipIf(whyNoGvisor !== undefined)('in pods of gVisor', () => {
    it('holds a sandbox to its cores, as the node counts it', () => holdsToItsCores('gvisor'));
    backendSuite('kubernetes-job on gVisor', () => ground('gvisor'), { sandboxes: 10, skip: SKIPPED_ON_GVISOR });
  });
});
