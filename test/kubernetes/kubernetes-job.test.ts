/** The backend on a real cluster, in pods of the default runtime and of gVisor. */
import { afterAll, beforeAll, describe, it } from 'vitest';
import { kubernetesJobBackend } from '../../server/src/backends/kubernetes-job/kubernetes-job.ts';
import { backendSuite } from '../conformance/backend-suite.ts';
import { startCluster, whyNoCluster, type Cluster } from './cluster/cluster.ts';
import { kubectl, type Kubectl } from './cluster/kubectl.ts';
import { importSandboxImages } from './cluster/sandbox-images.ts';
import { holdsToItsCores, podGround, SKIPPED, SKIPPED_ON_GVISOR } from './pod-ground.ts';

const why = await whyNoCluster('full');
if (why !== undefined) console.info(`kubernetes-job: skipped: ${why}`);
const whyNoGvisor = why ?? (await whyNoCluster('full', { gvisor: true }));
if (whyNoGvisor !== why) console.info(`kubernetes-job on gVisor: skipped: ${whyNoGvisor}`);

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

  const ground = (runtimeClass?: string) => podGround(cluster, api, kubernetesJobBackend, runtimeClass);

  describe('in pods of the default runtime', () => {
    it('holds a sandbox to its cores, as the node counts it', async () => holdsToItsCores(cluster, await ground()));
    backendSuite('kubernetes-job', () => ground(), { sandboxes: 20, skip: SKIPPED });
  });

  describe.skipIf(whyNoGvisor !== undefined)('in pods of gVisor', () => {
    it('holds a sandbox to its cores, as the node counts it', async () => holdsToItsCores(cluster, await ground('gvisor')));
    backendSuite('kubernetes-job on gVisor', () => ground('gvisor'), { sandboxes: 10, skip: SKIPPED_ON_GVISOR });
  });
});
