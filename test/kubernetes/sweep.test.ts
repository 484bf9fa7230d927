/** Orphans in a real cluster are found and removed, and no objects of other owners. */
import { newId, SandboxSpecSchema, type SandboxId } from '@cay/sdk/protocol';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import { agentSandboxBackend } from '../../server/src/backends/kubernetes/agent-sandbox/agent-sandbox.ts';
import type { AgentSandboxOptions } from '../../server/src/backends/kubernetes/agent-sandbox/settings.ts';
import type { Backend, Orphan, Sweeping } from '../../server/src/backends/backend.ts';
import { kubernetesJobBackend } from '../../server/src/backends/kubernetes/job/kubernetes-job.ts';
import {
  kubernetesClient,
  type KubernetesClient,
} from '../../server/src/backends/kubernetes/client/kubernetes-client.ts';
import { objectName } from '../../server/src/backends/kubernetes/client/names.ts';
import type { KubernetesObject, List } from '../../server/src/backends/kubernetes/client/objects.ts';
import { sandboxLabels } from '../../server/src/backends/kubernetes/workloads/workload.ts';
import { installation } from '../../server/src/control/testing/test-control.ts';
import { until } from '../conformance/box.ts';
import { startCluster, whyNoCluster, type Cluster } from './cluster/cluster.ts';
import { kubectl, type Kubectl } from './cluster/kubectl.ts';

const why = await whyNoCluster('control-plane', { agentSandbox: true });
if (why !== undefined) console.info(`a sweep of a cluster: skipped: ${why}`);

const spec = SandboxSpecSchema.parse({ limits: { diskBytes: null, pids: null } });
const byName = (one: Orphan, other: Orphan) => one.name.localeCompare(other.name);

describe.skipIf(why !== undefined)('a sweep of a cluster', () => {
  let cluster: Cluster;
  let api: Kubectl;
  let client: KubernetesClient;
  let namespace: string;
  let backends: Backend[];

  beforeAll(async () => {
    cluster = await startCluster('control-plane', { agentSandbox: true });
    api = await kubectl(cluster);
    client = await kubernetesClient({ kubeconfig: cluster.kubeconfig });
  });
  afterAll(async () => {
    client?.close();
    api?.close();
    await cluster?.stop();
  });
  beforeEach(async () => {
    backends = [];
    namespace = await api.newNamespace('sweep');
  });
  afterEach(async () => {
    for (const backend of backends) await backend.close();
    await api.remove(`/api/v1/namespaces/${namespace}`);
  });

  const JOBS = { open: kubernetesJobBackend, path: '/apis/batch/v1', plural: 'jobs' };
  const SANDBOXES = { open: agentSandboxBackend, path: '/apis/agents.x-k8s.io/v1beta1', plural: 'sandboxes' };

  async function open(
    kind: typeof JOBS | typeof SANDBOXES,
    more: Partial<AgentSandboxOptions> = {},
  ): Promise<Backend & Sweeping> {
    const settings = {
      kubeconfig: cluster.kubeconfig,
      namespace,
      guestImage: 'guest:1',
      baseImage: 'base:1',
      ...more,
    };
    const backend = await kind.open(settings);
    backends.push(backend);
    return Object.assign(backend, backend.ability('sweep')!);
  }

  /** A sandbox that is being made, with a pod that no node takes. */
  async function begin(backend: Backend): Promise<SandboxId> {
    const id = newId('sbx');
    void backend.ensure(id, spec).catch(() => {});
    await until('there is a pod', async () => (await api.pods(namespace, id)).length > 0, 20_000);
    return id;
  }

  const labels = (owner: string, id = newId('sbx')) => sandboxLabels(id, { installation: owner });
  const create = (plural: string, kind: string, metadata: object, body: object) =>
    api.create(`/api/v1/namespaces/${namespace}/${plural}`, { apiVersion: 'v1', kind, metadata, spec: body });
  const claim = { accessModes: ['ReadWriteOnce'], resources: { requests: { storage: '1Gi' } } };
  const pod = {
    securityContext: { runAsNonRoot: true, runAsUser: 1000, seccompProfile: { type: 'RuntimeDefault' } },
    containers: [
      {
        name: 'c',
        image: 'x',
        securityContext: { allowPrivilegeEscalation: false, capabilities: { drop: ['ALL'] } },
      },
    ],
  };

  it.for([
    ['kubernetes-job', JOBS],
    ['agent-sandbox', SANDBOXES],
  ] as const)('finds pods and claims that nothing keeps, and only its own: %s', async ([, kind]) => {
    const makers = [await open(kind), await open(kind, { installation: 'other' })] as const;
    const kept = await begin(makers[0]);
    /** A pod without an owner. */
    const begun = kind === JOBS ? await Promise.all(makers.map(begin)) : [newId('sbx'), newId('sbx')];
    const [lost, foreign] = begun as [SandboxId, SandboxId];
    // They sweep now and then by themselves.
    for (const maker of makers) await maker.close();
    const backend = await open(kind);
    expect(await backend.sweep({ dryRun: true })).toEqual([]);
    for (const [owner, id] of [
      ['default', lost],
      ['other', foreign],
    ] as const) {
      if (kind === SANDBOXES) {
        await create('pods', 'Pod', { name: `left-${owner}`, labels: labels(owner, id) }, pod);
        continue;
      }
      const body = { propagationPolicy: 'Orphan' };
      await client.json('DELETE', `${kind.path}/namespaces/${namespace}/${kind.plural}/${objectName(id)}`, {
        action: 'lose it',
        body,
      });
      await until(
        'it is gone',
        async () => !(await api.names(namespace)).includes(`jobs/${objectName(id)}`),
        20_000,
      );
    }
    await create(
      'persistentvolumeclaims',
      'PersistentVolumeClaim',
      { name: 'lost', labels: labels('default') },
      claim,
    );
    await create(
      'persistentvolumeclaims',
      'PersistentVolumeClaim',
      { name: 'foreign', labels: labels('other') },
      claim,
    );
    await create('pods', 'Pod', { name: 'anybodys' }, pod);
    const node = { apiVersion: 'v1', kind: 'ConfigMap', name: 'kube-root-ca.crt' };
    const { metadata } = await api.get<KubernetesObject>(
      `/api/v1/namespaces/${namespace}/configmaps/kube-root-ca.crt`,
    );
    const ownerReferences = [{ ...node, uid: metadata.uid }];
    await create('pods', 'Pod', { name: 'of-another-kind', labels: labels('default'), ownerReferences }, pod);

    const [stray] = await api.pods(namespace, lost);
    const orphans = [
      { kind: 'pod', name: stray!.metadata.name },
      { kind: 'volume_claim', name: 'lost' },
    ] as const;
    expect(await backend.sweep({ dryRun: true })).toEqual(orphans);
    expect(await api.names(namespace)).toEqual(
      expect.arrayContaining([`pods/${stray!.metadata.name}`, 'persistentvolumeclaims/lost']),
    );
    expect(await backend.sweep()).toEqual(orphans);
    await until('they are gone', async () => (await backend.sweep({ dryRun: true })).length === 0, 20_000);
    const left = await api.names(namespace);
    expect(left).toEqual(
      expect.arrayContaining(['pods/anybodys', 'pods/of-another-kind', 'persistentvolumeclaims/foreign']),
    );
    expect(left).not.toContain('persistentvolumeclaims/lost');
    for (const id of [kept, foreign]) expect(await api.pods(namespace, id)).toHaveLength(1);
    expect((await backend.list()).map(({ id }) => id)).toEqual([kept]);
  });

  it('finds a warm pool that the settings ask for no longer', async () => {
    const EXTENSIONS = `/apis/extensions.agents.x-k8s.io/v1beta1/namespaces/${namespace}`;
    const names = async (plural: string) =>
      (await api.get<List<KubernetesObject>>(`${EXTENSIONS}/${plural}`)).items.map(
        ({ metadata }) => metadata.name,
      );
    const pooled = await open(SANDBOXES, { warmPool: 1 });
    const other = await open(SANDBOXES, { warmPool: 1, installation: 'other' });
    await Promise.all([pooled.capabilities(), other.capabilities()]);
    await until(
      'there is stock',
      async () =>
        (await api.get<List<KubernetesObject>>(`/api/v1/namespaces/${namespace}/pods`)).items.length === 2,
      20_000,
    );
    expect(await pooled.sweep({ dryRun: true })).toEqual([]);
    await pooled.close();

    // Nobody knows which pool is meant until it was made.
    expect(await (await open(SANDBOXES, { warmPool: 2 })).sweep()).toEqual([]);
    const none = await open(SANDBOXES);
    const [mine] = (await names('sandboxwarmpools')).filter((name) => !name.includes('other'));
    const expected: Orphan[] = ['sandboxwarmpools', 'sandboxtemplates'].map((plural) => ({
      kind: 'warm_pool',
      name: `${plural}/${mine}`,
    }));
    const found = [...expected, { kind: 'warm_pool', name: 'sandboxes/cay-default-warm' } as const].toSorted(
      byName,
    );
    expect((await none.sweep({ dryRun: true })).toSorted(byName)).toEqual(found);
    expect((await none.sweep()).toSorted(byName)).toEqual(found);
    await until('all of it is gone', async () => (await names('sandboxtemplates')).length === 1, 20_000);
    expect((await names('sandboxwarmpools')).every((name) => name.includes('other'))).toBe(true);
    expect(await other.sweep({ dryRun: true })).toEqual([]);
  });

  it('takes away sandboxes that no record knows, and says so', async () => {
    const place = installation();
    const backend = await open(JOBS);
    const opened = await place.open(backend, { reconcileMs: 3_600_000 });
    try {
      const earlier = await open(JOBS);
      const id = await begin(earlier);
      const foreign = await begin(await open(JOBS, { installation: 'other' }));
      await earlier.close();
      expect(await opened.control.sweep(opened.principal, { dryRun: true })).toEqual([
        { kind: 'sandbox', name: id },
      ]);
      expect((await backend.observe(id)).phase).toBe('starting');
      expect(await opened.control.sweep(opened.principal)).toEqual([{ kind: 'sandbox', name: id }]);
      expect((await backend.observe(id)).phase).toBe('absent');
      expect(await api.pods(namespace, id)).toEqual([]);
      expect(await api.pods(namespace, foreign)).toHaveLength(1);
      expect(await opened.control.sweep(opened.principal)).toEqual([]);
      expect(opened.errors).toEqual([]);
    } finally {
      await opened.control.close();
      place.remove();
    }
  });
});
