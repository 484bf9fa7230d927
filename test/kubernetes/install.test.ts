/** The server as it is installed in a cluster: its image, its account and its manifests, on a real node. */
import { chown, mkdir, readFile } from 'node:fs/promises';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { writeServerImage } from '../../packaging/images/server-image.ts';
import { pathOf, type Declared } from '../../server/src/backends/kubernetes/client/apply.ts';
import {
  kubernetesClient,
  type KubernetesClient,
} from '../../server/src/backends/kubernetes/client/kubernetes-client.ts';
import type { KubernetesObject, List, Pod } from '../../server/src/backends/kubernetes/client/objects.ts';
import { fromYaml } from '../../server/src/backends/kubernetes/client/yaml.ts';
import { until } from '../conformance/box.ts';
import { startCluster, whyNoCluster, type Cluster } from './cluster/cluster.ts';
import { OWN_PORTS } from './cluster/control-plane.ts';
import { execIn } from './cluster/exec-in.ts';
import { kubectl, type Kubectl } from './cluster/kubectl.ts';
import { BASE_IMAGE, GUEST_IMAGE, importSandboxImages } from './cluster/sandbox-images.ts';

const why = await whyNoCluster('full');
if (why !== undefined) console.info(`the server in a cluster: skipped: ${why}`);

const SERVER_IMAGE = 'cay.test/server:1';
const MANIFESTS = new URL('../../packaging/kubernetes/manifests/cay.yaml', import.meta.url);
const namespace = 'cay';

describe.skipIf(why !== undefined)('the server in a cluster', () => {
  let cluster: Cluster;
  let api: Kubectl;
  let client: KubernetesClient;

  beforeAll(async () => {
    cluster = await startCluster('full');
    [api, client] = [await kubectl(cluster), await kubernetesClient({ kubeconfig: cluster.kubeconfig })];
    await importSandboxImages(cluster);
    const image = `${cluster.directory}/server.tar`;
    await writeServerImage(image, { name: SERVER_IMAGE });
    await cluster.importImage(image);
    await mkdir(`${cluster.directory}/data`);
    await chown(`${cluster.directory}/data`, 1000, 1000);
    for (const object of await manifestsHere()) {
      const query = { fieldManager: 'test', force: true };
      await client.json('PATCH', pathOf(object), {
        action: 'install',
        query,
        body: object,
        type: 'application/apply-patch+yaml',
      });
    }
  });

  afterAll(async () => {
    client?.close();
    api?.close();
    await cluster?.stop();
  });

  /**
   * With the images that this node has. What this cluster lacks is done without: nothing provisions volumes,
   * so that the records are on the node, and there is no kube-proxy by which a pod reaches the API server, so
   * that the server's pod has the node's network. From there it reaches guests directly.
   */
  async function manifestsHere(): Promise<Declared[]> {
    const text = (await readFile(MANIFESTS, 'utf8'))
      .replaceAll(/cay\/server:\S+/g, SERVER_IMAGE)
      .replaceAll(/cay\/guest:\S+/g, GUEST_IMAGE)
      .replaceAll('debian:stable-slim', BASE_IMAGE)
      .replace(/(CAY_KUBERNETES_REACH\n\s+value: )exec/, '$1direct')
      .replaceAll('IfNotPresent', 'Never');
    const objects = fromYaml<Declared>(text).filter(({ kind }) => kind !== 'PersistentVolumeClaim');
    objects[0]!.metadata.labels = { 'pod-security.kubernetes.io/enforce': 'privileged' };
    const deployment = objects.find(({ kind }) => kind === 'Deployment') as unknown as {
      spec: {
        template: { spec: { hostNetwork?: boolean; containers: { env: object[] }[]; volumes: object[] } };
      };
    };
    const { spec: pod } = deployment.spec.template;
    pod.hostNetwork = true;
    pod.containers[0]!.env.push(
      { name: 'KUBERNETES_SERVICE_HOST', value: '127.0.0.1' },
      { name: 'KUBERNETES_SERVICE_PORT', value: String(OWN_PORTS.api) },
    );
    pod.volumes[0] = { name: 'data', hostPath: { path: `${cluster.directory}/data` } };
    return objects;
  }

  async function readyPod(except?: string): Promise<string> {
    let name: string | undefined;
    const selector = { labelSelector: 'app.kubernetes.io/name=cay' };
    await until(
      'the server is ready',
      async () => {
        const { items } = await api.get<List<Pod>>(`/api/v1/namespaces/${namespace}/pods`, selector);
        const isReady = ({ metadata, status }: Pod) =>
          metadata.name !== except &&
          status?.conditions?.some(({ type, status: is }) => type === 'Ready' && is === 'True') === true;
        name = items.find(isReady)?.metadata.name;
        return name !== undefined;
      },
      60_000,
    );
    return name!;
  }

  /** A program in the server's container, started by the node and not through the API server. */
  async function onNode(pod: string): Promise<(...argv: string[]) => Promise<string>> {
    const { status } = await api.get<Pod>(`/api/v1/namespaces/${namespace}/pods/${pod}`);
    const container = (status!.containerStatuses![0] as { containerID?: string }).containerID!.replace(
      'containerd://',
      '',
    );
    let number = 0;
    return (...argv) =>
      cluster.ctr(
        'tasks',
        'exec',
        '--fifo-dir',
        cluster.directory,
        '--exec-id',
        `test-${++number}`,
        container,
        ...argv,
      );
  }

  it('is ready, makes sandboxes with the rights of its account, and loses none when it is replaced', async () => {
    const first = await readyPod();
    const cay = (pod: string, ...args: string[]) =>
      execIn(client, { namespace, pod, argv: ['cay', ...args] });
    expect(await cay(first, 'run', '--', 'echo', 'from a pod')).toBe('from a pod\n');
    await cay(first, 'create', '--name', 'keeper');
    await cay(first, 'exec', 'keeper', '--', 'sh', '-c', 'echo kept > note; (sleep 600 & echo $! > pid)');
    await api.remove(`/api/v1/namespaces/${namespace}/pods/${first}`);
    const second = await readyPod(first);
    expect(
      await cay(second, 'exec', 'keeper', '--', 'sh', '-c', 'cat note; kill -0 $(cat pid) && echo alive'),
    ).toBe('kept\nalive\n');
    await cay(second, 'rm', 'keeper');
    const projects = await api.get<List<KubernetesObject>>('/api/v1/namespaces', {
      labelSelector: 'cay.dev/project',
    });
    const homes = projects.items.map(({ metadata }) => metadata.name);
    expect(homes).toEqual([expect.stringMatching(/^cay-sandboxes-prj-/)]);
    for (const home of ['cay-sandboxes', ...homes]) {
      // The network is tried in the background after each start.
      await until('nothing is left', async () => (await api.names(home)).length === 0, 30_000);
      const policies = await api.get<List<KubernetesObject>>(
        `/apis/networking.k8s.io/v1/namespaces/${home}/networkpolicies`,
      );
      expect(policies.items.map(({ metadata }) => metadata.name)).toEqual(['cay-sandboxes']);
    }
  });

  it('reaches its sandboxes directly, and no other client can', async () => {
    const pod = await readyPod();
    const cay = await onNode(pod);
    await cay('cay', 'create', '--name', 'direct');
    await cluster.hold('kube-apiserver');
    try {
      expect(await cay('cay', 'exec', 'direct', '--', 'echo', 'without an API server')).toBe(
        'without an API server\n',
      );
    } finally {
      await cluster.release('kube-apiserver');
    }
    await until(
      'the API server is back',
      () =>
        cay('cay', 'rm', 'direct').then(
          () => true,
          () => false,
        ),
      30_000,
    );
    const policy = await api.get<{ spec: object }>(
      '/apis/networking.k8s.io/v1/namespaces/cay-sandboxes/networkpolicies/cay-sandboxes',
    );
    const labels = { 'app.kubernetes.io/name': 'cay', 'app.kubernetes.io/component': 'server' };
    const from = [
      {
        namespaceSelector: { matchLabels: { 'kubernetes.io/metadata.name': 'cay' } },
        podSelector: { matchLabels: labels },
      },
    ];
    expect(policy.spec).toMatchObject({
      podSelector: {},
      policyTypes: ['Ingress', 'Egress'],
      ingress: [{ from, ports: [{ port: 7071 }] }],
    });
    expect(policy.spec).not.toHaveProperty('egress');
  });
});
