/** What a cluster without a node can show: objects, controllers, admission, rights. */
import { SandboxSpecSchema, newId, type SandboxId } from '@cay/sdk/protocol';
import { writeFile } from 'node:fs/promises';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import type { Backend, Observation } from '../../server/src/backends/backend.ts';
import { agentSandboxBackend } from '../../server/src/backends/kubernetes/agent-sandbox/agent-sandbox.ts';
import type { AgentSandboxOptions } from '../../server/src/backends/kubernetes/agent-sandbox/settings.ts';
import { kubernetesJobBackend } from '../../server/src/backends/kubernetes/job/kubernetes-job.ts';
import { objectName } from '../../server/src/backends/kubernetes/client/names.ts';
import type {
  Job,
  KubernetesObject,
  List,
  Pod,
} from '../../server/src/backends/kubernetes/client/objects.ts';
import { podSpec } from '../../server/src/backends/kubernetes/workloads/pod-spec.ts';
import { statusPatch } from '../../server/src/backends/kubernetes/workloads/workload-status.ts';
import { until } from '../conformance/box.ts';
import { startCluster, whyNoCluster, type Cluster } from './cluster/cluster.ts';
import { kubectl, type Kubectl } from './cluster/kubectl.ts';

const why = await whyNoCluster('control-plane');
if (why !== undefined) console.info(`a cluster without nodes: skipped: ${why}`);
const whyNoAgentSandbox = why ?? (await whyNoCluster('control-plane', { agentSandbox: true }));
if (whyNoAgentSandbox !== why)
  console.info(`agent-sandbox on a cluster without nodes: skipped: ${whyNoAgentSandbox}`);

interface Kind {
  name: string;
  whyNot: string | undefined;
  open(settings: AgentSandboxOptions): Promise<Backend>;
  /** Of the collection, after the namespace. */
  path: [version: string, plural: string];
  /** A right that it needs. */
  right: string;
  /** How many seconds the cluster keeps an object. */
  lease(object: KubernetesObject): number;
  /** What a lease of that many seconds is, as a patch. */
  leaseOf(seconds: number): object;
}

const JOBS: Kind = {
  name: 'kubernetes-job',
  whyNot: why,
  open: kubernetesJobBackend,
  path: ['/apis/batch/v1', 'jobs'],
  right: 'create jobs.batch',
  lease: (job: Job) => job.spec?.activeDeadlineSeconds ?? 0,
  leaseOf: (activeDeadlineSeconds) => ({ spec: { activeDeadlineSeconds } }),
};

const SANDBOXES: Kind = {
  name: 'agent-sandbox',
  whyNot: whyNoAgentSandbox,
  open: agentSandboxBackend,
  path: ['/apis/agents.x-k8s.io/v1beta1', 'sandboxes'],
  right: 'create sandboxes.agents.x-k8s.io',
  lease: (sandbox) =>
    Math.round(
      (Date.parse((sandbox as { spec?: { shutdownTime?: string } }).spec?.shutdownTime ?? '') - Date.now()) /
        1000,
    ),
  leaseOf: (seconds) => ({ spec: { shutdownTime: new Date(Date.now() + seconds * 1000).toISOString() } }),
};

const spec = SandboxSpecSchema.parse({ limits: { diskBytes: null, pids: null } });

describe.each([JOBS, SANDBOXES])('$name on a cluster without nodes', (kind) => {
  if (kind.whyNot !== undefined) {
    it.skip(`is not tried: ${kind.whyNot}`);
    return;
  }
  let cluster: Cluster;
  let api: Kubectl;
  let namespace: string;
  let backends: Backend[];

  beforeAll(async () => {
    cluster = await startCluster('control-plane', { agentSandbox: kind === SANDBOXES });
    api = await kubectl(cluster);
  });
  afterAll(async () => {
    api?.close();
    await cluster?.stop();
  });
  beforeEach(async () => {
    backends = [];
    namespace = await api.newNamespace('case');
  });
  afterEach(async () => {
    for (const backend of backends) await backend.close();
    await api.remove(`/api/v1/namespaces/${namespace}`);
  });

  async function open(more: Partial<AgentSandboxOptions> = {}): Promise<Backend> {
    const settings = {
      kubeconfig: cluster.kubeconfig,
      namespace,
      guestImage: 'guest:1',
      baseImage: 'base:1',
      ...more,
    };
    const backend = await kind.open(settings);
    backends.push(backend);
    return backend;
  }

  const pathOf = (id: SandboxId) =>
    `${kind.path[0]}/namespaces/${namespace}/${kind.path[1]}/${objectName(id)}`;
  const rejected = (promise: Promise<unknown>) =>
    promise.then(
      () => expect.fail('it resolved'),
      (error: unknown) => error,
    );

  /** The pod that the cluster makes for a sandbox that is being started. */
  async function podOf(id: SandboxId): Promise<Pod> {
    let pods: Pod[] = [];
    await until('there is a pod', async () => (pods = await api.pods(namespace, id)).length > 0, 10_000);
    return pods[0]!;
  }

  const setStatus = (pod: Pod, status: object) =>
    api.patch(`/api/v1/namespaces/${namespace}/pods/${pod.metadata.name}/status`, { status });

  /** A sandbox that is noted as ready in a pod that says to run. */
  async function pretend(backend: Backend): Promise<{ id: SandboxId; pod: Pod; done: Promise<unknown> }> {
    const id = newId('sbx');
    const aborter = new AbortController();
    const done = backend.ensure(id, spec, { signal: aborter.signal }).catch(() => {});
    const pod = await podOf(id);
    return { id, pod, done };
  }

  it('makes pods that Pod Security "restricted" takes', async () => {
    const options = {
      settings: { guestImage: 'guest:1', baseImage: 'base:1' },
      runtime: { name: 'default', gvisor: false },
      pullPolicy: 'Never',
      requests: { cpus: 0.05, memoryBytes: 1e6 },
    };
    const pod = {
      apiVersion: 'v1',
      kind: 'Pod',
      metadata: { name: 'ours' },
      spec: podSpec(newId('sbx'), spec, options),
    };
    await expect(api.create(`/api/v1/namespaces/${namespace}/pods?dryRun=All`, pod)).resolves.toBeDefined();
    const bare = {
      apiVersion: 'v1',
      kind: 'Pod',
      metadata: { name: 'bare' },
      spec: { containers: [{ name: 'c', image: 'x' }] },
    };
    await expect(api.create(`/api/v1/namespaces/${namespace}/pods?dryRun=All`, bare)).rejects.toMatchObject({
      details: { reason: 'admission_refused' },
    });
  });

  it('says that the quota is used up, and leaves nothing', async () => {
    const quota = {
      apiVersion: 'v1',
      kind: 'ResourceQuota',
      metadata: { name: 'none' },
      spec: { hard: { pods: '0' } },
    };
    await api.create(`/api/v1/namespaces/${namespace}/resourcequotas`, quota);
    const backend = await open();
    const id = newId('sbx');
    expect(await rejected(backend.ensure(id, spec))).toMatchObject({
      code: 'resource_exhausted',
      details: { reason: 'quota_exceeded' },
    });
    expect(await api.names(namespace)).toEqual([]);
    expect((await backend.observe(id)).phase).toBe('absent');
  });

  it('names a RuntimeClass that is not there', async () => {
    const backend = await open();
    expect(await rejected(backend.validate({ ...spec, runtime: 'warp' }))).toMatchObject({
      code: 'not_found',
      message: expect.stringContaining('"warp"'),
    });
    const other = await open({ runtimeClass: 'warp' });
    expect(await rejected(other.capabilities())).toMatchObject({
      code: 'failed_precondition',
      details: { reason: 'runtime_class_missing' },
    });
  });

  it('names the rights that the account lacks, and a command that mends it', async () => {
    await api.create(`/api/v1/namespaces/${namespace}/serviceaccounts`, {
      apiVersion: 'v1',
      kind: 'ServiceAccount',
      metadata: { name: 'weak' },
    });
    const request = { apiVersion: 'authentication.k8s.io/v1', kind: 'TokenRequest', spec: {} };
    const made = (await api.create(
      `/api/v1/namespaces/${namespace}/serviceaccounts/weak/token`,
      request,
    )) as { status: { token: string } };
    const kubeconfig = `${cluster.directory}/weak-${namespace}`;
    const own = JSON.parse(await (await import('node:fs/promises')).readFile(cluster.kubeconfig, 'utf8')) as {
      users: { user: object }[];
    };
    own.users[0]!.user = { token: made.status.token };
    await writeFile(kubeconfig, JSON.stringify(own), { mode: 0o600 });
    const error = await rejected((await open({ kubeconfig })).capabilities());
    expect(error).toMatchObject({
      code: 'permission_denied',
      details: { reason: 'rights_missing' },
      hint: expect.stringContaining('kubectl create role'),
    });
    expect((error as Error).message).toContain(kind.right);
    expect((error as Error).message).toContain('create pods/exec');
  });

  it.each([
    [
      'an image that cannot be pulled',
      { containerStatuses: [waiting('ImagePullBackOff', 'Back-off pulling image "base:1"')] },
      'not_found',
      'image_pull_failed',
    ],
    [
      'a container that cannot be made',
      { containerStatuses: [waiting('CreateContainerConfigError', 'no')] },
      'failed_precondition',
      'start_failed',
    ],
  ])('reports %s, and undoes the start', async (_, status, code, reason) => {
    const backend = await open();
    const id = newId('sbx');
    const ensured = rejected(backend.ensure(id, spec));
    await setStatus(await podOf(id), { phase: 'Pending', ...status });
    expect(await ensured).toMatchObject({ code, details: { reason } });
    expect(await api.names(namespace)).toEqual([]);
  });

  it('reports that no node has room only when that lasts', async () => {
    const backend = await open();
    const id = newId('sbx');
    const startedAt = Date.now();
    const ensured = rejected(backend.ensure(id, spec));
    const condition = {
      type: 'PodScheduled',
      status: 'False',
      reason: 'Unschedulable',
      message: '0/3 nodes are available',
      lastTransitionTime: null,
    };
    await setStatus(await podOf(id), { phase: 'Pending', conditions: [condition] });
    expect(await ensured).toMatchObject({ code: 'resource_exhausted', details: { reason: 'unschedulable' } });
    expect(Date.now() - startedAt).toBeGreaterThan(5_000);
  });

  it('has the cluster end sandboxes whose lease is not renewed', async () => {
    const backend = await open({ leaseSeconds: 60 });
    const { id, done } = await pretend(backend);
    await backend.close();
    await done;
    const other = await open({ leaseSeconds: 60 });
    const left = kind.lease(await api.get(pathOf(id)));
    expect(left).toBeGreaterThan(30);
    expect(left).toBeLessThanOrEqual(60);
    await api.patch(pathOf(id), kind.leaseOf(1));
    const isOver = ({ phase, message }: Observation) =>
      phase === 'absent' || message?.includes('lease') === true;
    await until('the lease is over', async () => isOver(await other.observe(id)), 20_000);
    await until(
      'its pod is gone',
      async () => (await api.pods(namespace, id)).every(({ metadata }) => metadata.deletionTimestamp),
      20_000,
    );
  });

  it('renews the leases of what it finds', async () => {
    const first = await open({ leaseSeconds: 60 });
    const { id } = await pretend(first);
    await first.close();
    await api.patch(pathOf(id), kind.leaseOf(30));
    const second = await open({ leaseSeconds: 3600 });
    second.watch();
    await until('it was renewed', async () => kind.lease(await api.get(pathOf(id))) >= 3590, 10_000);
  });

  it('tells of a pod that the cluster evicts', async () => {
    const backend = await open();
    const { id, pod } = await pretend(backend);
    const running = {
      name: 'sandbox',
      ready: true,
      restartCount: 0,
      image: 'x',
      imageID: 'x',
      state: { running: { startedAt: new Date().toISOString() } },
    };
    await backend.close();
    await setStatus(pod, { phase: 'Running', containerStatuses: [running] });
    await api.patch(
      pathOf(id),
      statusPatch({ incarnation: 1, mark: 'ready', pod: pod.metadata.uid, restarts: 0 }),
    );
    const watching = await open();
    expect((await watching.observe(id)).phase).toBe('ready');
    const seen: Observation[] = [];
    const aborter = new AbortController();
    const reading = (async () => {
      for await (const each of watching.watch({ signal: aborter.signal })) seen.push(each);
    })();
    await watching.list();
    await setStatus(pod, {
      phase: 'Failed',
      reason: 'Evicted',
      message: 'The node was low on resource: memory',
    });
    await until(
      'it was told',
      () => seen.some(({ phase, message }) => phase === 'failed' && message?.includes('Evicted') === true),
      5_000,
    );
    aborter.abort();
    await reading;
  });

  it('leaves alone what another installation has', async () => {
    const [one, other] = [await open({ installation: 'one' }), await open({ installation: 'other' })];
    const { id } = await pretend(one);
    expect(await other.list()).toEqual([]);
    expect((await other.observe(id)).phase).toBe('absent');
    await other.remove(id);
    expect((await one.list()).map((each) => each.id)).toEqual([id]);
  });

  if (kind === JOBS) {
    it('has no agent-sandbox, which its backend says with the command that installs it', async () => {
      const settings = {
        kubeconfig: cluster.kubeconfig,
        namespace,
        guestImage: 'guest:1',
        baseImage: 'base:1',
        warmPool: 1,
      };
      const backend = await agentSandboxBackend(settings);
      backends.push(backend);
      expect(await rejected(backend.capabilities())).toMatchObject({
        code: 'failed_precondition',
        message: expect.stringContaining(
          '"sandboxes" of agents.x-k8s.io/v1beta1, "sandboxtemplates" of extensions.agents.x-k8s.io/v1beta1',
        ),
        details: { reason: 'kind_missing' },
        hint: expect.stringContaining('kubectl apply'),
      });
    });
    return;
  }

  it('says that no controller looks at a sandbox', async () => {
    await cluster.hold('agent-sandbox');
    try {
      const backend = await open();
      const id = newId('sbx');
      expect(await rejected(backend.ensure(id, spec))).toMatchObject({
        code: 'unavailable',
        details: { reason: 'controller_missing' },
      });
      expect((await backend.observe(id)).phase).toBe('absent');
    } finally {
      await cluster.release('agent-sandbox');
    }
  });

  it('keeps one pool as the settings say, and the cluster ends it when its lease is not renewed', async () => {
    const listed = async (plural: string) => {
      const path = `/apis/extensions.agents.x-k8s.io/v1beta1/namespaces/${namespace}/${plural}`;
      return (await api.get<List<KubernetesObject & { spec: { replicas: number } }>>(path)).items;
    };
    await (await open({ installation: 'other', warmPool: 1 })).capabilities();
    await (await open({ warmPool: 1 })).capabilities();
    const names = (await listed('sandboxwarmpools')).map(({ metadata }) => metadata.name);
    expect(names).toHaveLength(2);
    await (await open({ warmPool: 2, baseImage: 'base:2' })).capabilities();
    const now = await listed('sandboxwarmpools');
    expect(new Set(now.map(({ spec: { replicas } }) => replicas))).toEqual(new Set([1, 2]));
    expect(now.filter(({ metadata }) => names.includes(metadata.name))).toHaveLength(1);
    expect(await listed('sandboxtemplates')).toHaveLength(2);

    for (const backend of backends.splice(0)) await backend.close();
    const holder = `${kind.path[0]}/namespaces/${namespace}/sandboxes/cay-default-warm`;
    expect(kind.lease(await api.get(holder))).toBeGreaterThan(3500);
    await api.patch(holder, kind.leaseOf(0));
    await until('the pool is gone', async () => (await listed('sandboxwarmpools')).length === 1, 20_000);
    expect((await listed('sandboxwarmpools'))[0]!.metadata.name).toContain('other');
    await until('the template is gone', async () => (await listed('sandboxtemplates')).length === 1, 20_000);
  });
});

function waiting(reason: string, message: string): object {
  return {
    name: 'sandbox',
    ready: false,
    restartCount: 0,
    image: 'x',
    imageID: '',
    state: { waiting: { reason, message } },
  };
}
