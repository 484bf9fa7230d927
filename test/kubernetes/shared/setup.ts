/** One cluster for all tests of this folder, which run side by side on it, each in namespaces of its own. */
import type { TestProject } from 'vitest/node';
import { startCluster, whyNoCluster, type Cluster } from '../cluster/cluster.ts';
import { kubectl, type Kubectl } from '../cluster/kubectl.ts';
import { startProvisioner, type Provisioner } from '../cluster/provisioner.ts';
import { importSandboxImages } from '../cluster/sandbox-images.ts';
import { createVolumes } from '../cluster/volumes.ts';

/** What a test has to know of it, or why there is none. */
export type Shared =
  | { directory: string; kubeconfig: string; whyNoGvisor: string | undefined }
  | { whyNot: string };

declare module 'vitest' {
  export interface ProvidedContext {
    cluster: Shared;
  }
}

let cluster: Cluster | undefined;
let api: Kubectl | undefined;
let provisioner: Provisioner | undefined;

export async function setup(project: TestProject): Promise<void> {
  const options = { agentSandbox: true };
  const whyNot = await whyNoCluster('full', options);
  if (whyNot !== undefined) return project.provide('cluster', { whyNot });
  cluster = await startCluster('full', options);
  api = await kubectl(cluster);
  const { directory, kubeconfig, whyNoGvisor } = cluster;
  await importSandboxImages(cluster);
  await createVolumes(cluster, api, 24);
  if (whyNoGvisor === undefined) await api.createRuntimeClass('gvisor');
  provisioner = await startProvisioner(cluster, api);
  project.provide('cluster', { directory, kubeconfig, whyNoGvisor });
}

export async function teardown(): Promise<void> {
  await provisioner?.stop();
  api?.close();
  await cluster?.stop();
}
