/** The chart, by the real Helm, on a real API server. */
import { execFile } from 'node:child_process';
import { readFile } from 'node:fs/promises';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { POOL_RIGHTS, RIGHTS } from '../../server/src/backends/kubernetes/agent-sandbox/needs.ts';
import { pathOf, type Declared } from '../../server/src/backends/kubernetes/client/apply.ts';
import type { KubernetesObject, List } from '../../server/src/backends/kubernetes/client/objects.ts';
import { neededRights } from '../../server/src/backends/kubernetes/tenancy/declarations.ts';
import { rulesOf } from '../../server/src/backends/kubernetes/tenancy/rbac.ts';
import { fromYaml } from '../../server/src/backends/kubernetes/client/yaml.ts';
import { startCluster, whyNoCluster, type Cluster } from './cluster/cluster.ts';
import { kubectl, type Kubectl } from './cluster/kubectl.ts';
import { installParts } from './cluster/parts.ts';

const parts = await installParts(['helm']);
const why = (await whyNoCluster('control-plane')) ?? parts.whyNot('helm');
if (why !== undefined) console.info(`Helm on a cluster: skipped: ${why}`);

const run = promisify(execFile);
const CHART = fileURLToPath(new URL('../../packaging/kubernetes/chart', import.meta.url));
const MANIFESTS = new URL('../../packaging/kubernetes/manifests/cay.yaml', import.meta.url);
const namespace = 'cay';

describe.skipIf(why !== undefined)('Helm on a cluster', () => {
  let cluster: Cluster;
  let api: Kubectl;

  beforeAll(async () => {
    cluster = await startCluster('control-plane');
    api = await kubectl(cluster);
  });
  afterAll(async () => {
    api?.close();
    await cluster?.stop();
  });

  async function helm(...args: string[]): Promise<string> {
    const home = `${cluster.directory}/helm`;
    const env = {
      ...process.env,
      KUBECONFIG: cluster.kubeconfig,
      HELM_CACHE_HOME: home,
      HELM_CONFIG_HOME: home,
      HELM_DATA_HOME: home,
    };
    return (await run(`${parts.directory('helm')}/helm`, args, { env, maxBuffer: 16 * 1024 * 1024 })).stdout;
  }

  /** Without what only the chart says: that Helm has to keep something. */
  function plain(object: Declared): Declared {
    const { annotations: _annotations, ...metadata } = object.metadata;
    return { ...object, metadata };
  }
  const inOrder = (objects: Declared[]) =>
    objects.map(plain).toSorted((one, other) => pathOf(one).localeCompare(pathOf(other)));

  it('finds nothing wrong with the chart, which says what the manifests say', async () => {
    expect(await helm('lint', '--strict', CHART)).toContain('0 chart(s) failed');
    const rendered = fromYaml<Declared>(await helm('template', 'cay', CHART, '--namespace', namespace));
    const [, ...manifests] = fromYaml<Declared>(await readFile(MANIFESTS, 'utf8'));
    expect(inOrder(rendered)).toEqual(inOrder(manifests));
  });

  it('gives the server the rights of the backend that was chosen', async () => {
    const set = [
      '--set',
      'backend=agent-sandbox',
      '--set-string',
      'warmPool=2',
      '--set',
      'sandboxStorage=5Gi',
    ];
    const rendered = fromYaml<Declared>(
      await helm('template', 'cay', CHART, '--namespace', namespace, ...set),
    );
    const role = rendered.find(
      ({ kind, metadata }) => kind === 'ClusterRole' && metadata.name === 'cay-sandboxes-cay',
    );
    const tenancy = { pods: 1, perProject: true };
    const needed = neededRights([...RIGHTS, ...POOL_RIGHTS], {
      tenancy,
      installation: 'cay',
    });
    expect(role!['rules']).toEqual(rulesOf(needed.filter(({ clusterWide }) => !clusterWide)));
    expect(JSON.stringify(rendered)).not.toContain('"jobs"');
    expect(JSON.stringify(rendered)).toContain('{"name":"CAY_BACKEND","value":"agent-sandbox"}');
  });

  it('installs, upgrades with other values, and keeps records and sandboxes when it removes the rest', async () => {
    await helm('install', 'cay', CHART, '--namespace', namespace, '--create-namespace');
    const deployment = async () => {
      const found = await api.get<Declared>(`/apis/apps/v1/namespaces/${namespace}/deployments/cay`);
      return found as unknown as {
        spec: { template: { spec: { containers: { env: { name: string; value: string }[] }[] } } };
      };
    };
    const valueOf = async (name: string) =>
      (await deployment()).spec.template.spec.containers[0]!.env.find((each) => each.name === name)?.value;
    expect(await valueOf('CAY_KUBERNETES_QUOTA_PODS')).toBe('100');
    await helm(
      'upgrade',
      'cay',
      CHART,
      '--namespace',
      namespace,
      '--set-string',
      'quotaPods=5',
      '--set',
      'logLevel=debug',
    );
    expect([await valueOf('CAY_KUBERNETES_QUOTA_PODS'), await valueOf('CAY_LOG_LEVEL')]).toEqual([
      '5',
      'debug',
    ]);
    await helm('uninstall', 'cay', '--namespace', namespace);
    const names = async (path: string) =>
      (await api.get<List<KubernetesObject>>(path)).items.map(({ metadata }) => metadata.name);
    expect(await names(`/apis/apps/v1/namespaces/${namespace}/deployments`)).toEqual([]);
    expect(await names(`/api/v1/namespaces/${namespace}/persistentvolumeclaims`)).toEqual(['cay']);
    expect(await names('/api/v1/namespaces')).toContain('cay-sandboxes');
    // What is kept can be taken over by the next installation.
    await helm('install', 'cay', CHART, '--namespace', namespace);
    expect(await valueOf('CAY_KUBERNETES_QUOTA_PODS')).toBe('100');
  });
});
