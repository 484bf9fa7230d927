/**
 * A node that does not answer any more, and pods that the cluster ends, on a real cluster that notices soon.
 */
import { newId, SandboxSpecSchema, type SandboxId } from '@cay/sdk/protocol';
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest';
import type { Backend, Observation } from '../../server/src/backends/backend.ts';
import { kubernetesJobBackend } from '../../server/src/backends/kubernetes/job/kubernetes-job.ts';
import type {
  Condition,
  KubernetesObject,
  List,
} from '../../server/src/backends/kubernetes/client/objects.ts';
import { drain, until } from '../conformance/box.ts';
import { startCluster, whyNoCluster, type Cluster } from './cluster/cluster.ts';
import { kubectl, type Kubectl } from './cluster/kubectl.ts';
import { BASE_IMAGE, GUEST_IMAGE, importSandboxImages } from './cluster/sandbox-images.ts';

const why = await whyNoCluster('full');
if (why !== undefined) console.info(`a node that is lost: skipped: ${why}`);

const NAMESPACE = 'lost';
const LOSS_SECONDS = 6;
/** How late we may tell what the cluster has noticed. */
const TOLD_MS = 5_000;
const spec = SandboxSpecSchema.parse({ limits: { diskBytes: null, pids: null } });

interface Node extends KubernetesObject {
  status?: { conditions?: Condition[] };
}

describe.skipIf(why !== undefined)('a sandbox that its cluster takes away', () => {
  let cluster: Cluster;
  let api: Kubectl;
  let backend: Backend;
  let aborter: AbortController;
  let watching: Promise<void>;
  const seen: Observation[] = [];
  const ids: SandboxId[] = [];

  beforeAll(async () => {
    cluster = await startCluster('full', { lossSeconds: LOSS_SECONDS });
    api = await kubectl(cluster);
    await importSandboxImages(cluster);
    await api.createNamespace(NAMESPACE);
    const images = { guestImage: GUEST_IMAGE, baseImage: BASE_IMAGE, pullPolicy: 'Never' as const };
    backend = await kubernetesJobBackend({ kubeconfig: cluster.kubeconfig, namespace: NAMESPACE, ...images });
    aborter = new AbortController();
    watching = (async () => {
      for await (const each of backend.watch({ signal: aborter.signal })) seen.push(each);
    })();
  });
  afterEach(async () => {
    for (const id of ids.splice(0)) await backend.remove(id);
    expect(await api.names(NAMESPACE)).toEqual([]);
  });
  afterAll(async () => {
    aborter?.abort();
    await watching;
    await backend?.close();
    api?.close();
    await cluster?.stop();
  });

  async function make(): Promise<SandboxId> {
    const id = newId('sbx');
    ids.push(id);
    await backend.ensure(id, spec);
    return id;
  }

  const run = async (id: SandboxId) => {
    const guest = await backend.connect(id);
    return (
      await drain(await guest.exec({ id: newId('cmd'), argv: ['true'], env: {}, workdir: '/', user: 'user' }))
    ).exitCode;
  };
  const nodeIsReady = async () => {
    const [node] = (await api.get<List<Node>>('/api/v1/nodes')).items;
    return node?.status?.conditions?.find(({ type }) => type === 'Ready')?.status === 'True';
  };
  const lastOf = (id: SandboxId) => seen.findLast((each) => each.id === id);

  it('with a node that does not answer is reported, and is as it was when the node is back', async () => {
    const id = await make();
    await cluster.hold('kubelet');
    try {
      await until('the cluster misses the node', async () => !(await nodeIsReady()), 60_000);
      await until('it was told', () => lastOf(id)?.phase === 'failed', TOLD_MS);
      expect(lastOf(id)).toMatchObject({ reason: 'removed_outside', message: 'Its node does not answer' });
      expect(await backend.observe(id)).toMatchObject({
        phase: 'failed',
        message: 'Its node does not answer',
      });
      await expect(backend.connect(id)).rejects.toMatchObject({
        code: 'failed_precondition',
        message: /node does not answer/,
      });
    } finally {
      await cluster.release('kubelet');
    }
    await until('the node is back', nodeIsReady, 60_000);
    await until('it was told', () => lastOf(id)?.phase === 'ready', 30_000);
    expect(await backend.observe(id)).toMatchObject({ phase: 'ready', incarnation: 1 });
    await until(
      'it answers',
      () =>
        run(id).then(
          (code) => code === 0,
          () => false,
        ),
      30_000,
    );
  });

  it('by an eviction is reported, and can be started again', async () => {
    const id = await make();
    const [pod] = await api.pods(NAMESPACE, id);
    const { name } = pod!.metadata;
    const body = { apiVersion: 'policy/v1', kind: 'Eviction', metadata: { name, namespace: NAMESPACE } };
    await api.create(`/api/v1/namespaces/${NAMESPACE}/pods/${name}/eviction`, body);
    await until('it was told', () => lastOf(id)?.phase === 'failed', TOLD_MS);
    expect(lastOf(id)).toMatchObject({
      reason: 'removed_outside',
      message: /ended by the cluster \(EvictionByEvictionAPI\)/,
    });
    expect(await backend.ensure(id, spec)).toMatchObject({ phase: 'ready', incarnation: 2 });
    expect(await run(id)).toBe(0);
  });

  it('for a pod of higher priority is reported', async () => {
    await api.create('/apis/scheduling.k8s.io/v1/priorityclasses', {
      apiVersion: 'scheduling.k8s.io/v1',
      kind: 'PriorityClass',
      metadata: { name: 'first' },
      value: 1_000_000,
    });
    const [node] = (await api.get<List<Node & { status: { allocatable: { cpu: string } } }>>('/api/v1/nodes'))
      .items;
    const id = await make();
    // As much as the node has: the scheduler makes room.
    const resources = { requests: { cpu: node!.status.allocatable.cpu } };
    const security = { allowPrivilegeEscalation: false, capabilities: { drop: ['ALL'] } };
    const first = { apiVersion: 'v1', kind: 'Pod', metadata: { name: 'first' } };
    await api.create(`/api/v1/namespaces/${NAMESPACE}/pods`, {
      ...first,
      spec: {
        priorityClassName: 'first',
        securityContext: { runAsNonRoot: true, runAsUser: 1000, seccompProfile: { type: 'RuntimeDefault' } },
        containers: [
          {
            name: 'c',
            image: 'cay.test/none:1',
            imagePullPolicy: 'Never',
            securityContext: security,
            resources,
          },
        ],
      },
    });
    try {
      await until('it was told', () => lastOf(id)?.phase === 'failed', 30_000);
      expect(lastOf(id)).toMatchObject({
        reason: 'removed_outside',
        message: /ended by the cluster \(Preempt/,
      });
    } finally {
      await api.remove(`/api/v1/namespaces/${NAMESPACE}/pods/first`);
      await until('it is gone', async () => !(await api.names(NAMESPACE)).includes('pods/first'), 30_000);
    }
  });
});
