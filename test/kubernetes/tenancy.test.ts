/**
 * The namespace that sandboxes live in, the rights of the server, and what is printed of both, on a real API
 * server.
 */
import { newId, SandboxSpecSchema, type SandboxId } from '@cay/sdk/protocol';
import { execFile } from 'node:child_process';
import { readFile } from 'node:fs/promises';
import { promisify } from 'node:util';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import type { Backend } from '../../server/src/backends/backend.ts';
import { kubernetesJobBackend } from '../../server/src/backends/kubernetes/job/kubernetes-job.ts';
import { RIGHTS } from '../../server/src/backends/kubernetes/job/needs.ts';
import { pathOf, type Declared } from '../../server/src/backends/kubernetes/client/apply.ts';
import {
  kubernetesClient,
  type KubernetesClient,
} from '../../server/src/backends/kubernetes/client/kubernetes-client.ts';
import { objectName } from '../../server/src/backends/kubernetes/client/names.ts';
import type { KubernetesObject } from '../../server/src/backends/kubernetes/client/objects.ts';
import { rbacObjects } from '../../server/src/backends/kubernetes/tenancy/rbac.ts';
import type { KubernetesSettings } from '../../server/src/backends/kubernetes/settings.ts';
import {
  TENANCY_RIGHTS,
  tenancyObjects,
  type TenancySettings,
} from '../../server/src/backends/kubernetes/tenancy/tenancy.ts';
import { tenancyReconciler } from '../../server/src/backends/kubernetes/tenancy/reconcile-tenancy.ts';
import { fromYaml } from '../../server/src/backends/kubernetes/client/yaml.ts';
import { until } from '../conformance/box.ts';
import { accountKubeconfig, APPLY } from './cluster/account-kubeconfig.ts';
import { startCluster, whyNoCluster, type Cluster } from './cluster/cluster.ts';
import { kubectl, type Kubectl } from './cluster/kubectl.ts';

const why = await whyNoCluster('control-plane');
if (why !== undefined) console.info(`tenancy on a cluster: skipped: ${why}`);

const run = promisify(execFile);
const MAIN = new URL('../../server/src/main.ts', import.meta.url).pathname;
const spec = SandboxSpecSchema.parse({ limits: { pids: null } });
const installation = 'test';
const action = 'look behind the backend';

describe.skipIf(why !== undefined)('tenancy on a cluster', () => {
  let cluster: Cluster;
  let api: Kubectl;
  let client: KubernetesClient;
  let namespace: string;
  let closing: (() => unknown)[];

  beforeAll(async () => {
    cluster = await startCluster('control-plane');
    api = await kubectl(cluster);
    client = await kubernetesClient({ kubeconfig: cluster.kubeconfig });
    await api.createNamespace('cay');
  });
  afterAll(async () => {
    client?.close();
    api?.close();
    await cluster?.stop();
  });
  beforeEach(() => {
    closing = [];
    namespace = `tenant-${newId('sbx').slice(4, 12)}`;
  });
  afterEach(async () => {
    for (const close of closing) await close();
    await api.remove(`/api/v1/namespaces/${namespace}`);
  });

  const objects = (tenancy: TenancySettings = { pods: 7 }) =>
    tenancyObjects({ namespace, installation, tenancy });
  const inNamespace = (path: string) => `/api/v1/namespaces/${namespace}/${path}`;
  const policy = () => `/apis/networking.k8s.io/v1/namespaces/${namespace}/networkpolicies/cay-sandboxes`;
  const quotaOf = async () =>
    (await api.get<{ spec: { hard: Record<string, string> } }>(inNamespace('resourcequotas/cay-sandboxes')))
      .spec.hard;

  function keep(declared: Declared[], everyMs = 60_000) {
    const errors: unknown[] = [];
    const keeping = tenancyReconciler(client, {
      installation,
      objects: () => declared,
      everyMs,
      onError: (error) => errors.push(error),
    });
    closing.push(() => keeping.stop());
    return { ...keeping, errors };
  }

  async function open(more: Partial<KubernetesSettings> = {}): Promise<Backend> {
    const images = { guestImage: 'guest:1', baseImage: 'base:1' };
    const backend = await kubernetesJobBackend({
      kubeconfig: cluster.kubeconfig,
      namespace,
      installation,
      ...images,
      ...more,
    });
    closing.push(() => backend.close());
    return backend;
  }

  /** Starts a sandbox, which on a cluster without nodes goes no further than its pod. */
  async function begin(backend: Backend): Promise<SandboxId> {
    const id = newId('sbx');
    const aborter = new AbortController();
    const ended = backend.ensure(id, spec, { signal: aborter.signal }).catch((error: unknown) => error);
    await until('there is a pod', async () => (await api.pods(namespace, id)).length > 0, 10_000);
    closing.unshift(async () => {
      aborter.abort();
      await ended;
    });
    return id;
  }

  it('makes the namespace before its first sandbox, in which a pod of ours is taken and a bare one is not', async () => {
    const backend = await open({ tenancy: { pods: 7 } });
    const id = await begin(backend);
    const found = await api.get<KubernetesObject>(`/api/v1/namespaces/${namespace}`);
    expect(found.metadata.labels).toMatchObject({
      'pod-security.kubernetes.io/enforce': 'restricted',
      'cay.dev/installation': installation,
    });
    expect(await quotaOf()).toMatchObject({ pods: '7' });
    expect((await api.pods(namespace, id))[0]!.spec).toMatchObject({ automountServiceAccountToken: false });
    const bare = {
      apiVersion: 'v1',
      kind: 'Pod',
      metadata: { name: 'bare' },
      spec: { containers: [{ name: 'c', image: 'x' }] },
    };
    await expect(api.create(inNamespace('pods'), bare)).rejects.toMatchObject({
      details: { reason: 'admission_refused' },
    });
    expect((await api.names(namespace)).filter((name) => name.startsWith('secrets/'))).toEqual([]);
  });

  it('restores what was changed or removed from outside, and removes what is obsolete', async () => {
    const keeping = keep(objects(), 100);
    await keeping.ready();
    await api.patch(`/api/v1/namespaces/${namespace}`, {
      metadata: { labels: { 'pod-security.kubernetes.io/enforce': 'privileged', other: 'theirs' } },
    });
    await api.patch(policy(), { spec: { egress: [{}], ingress: [{}] } });
    await api.remove(inNamespace('limitranges/cay-sandboxes'));
    await until(
      'all is as declared',
      async () => {
        const { metadata } = await api.get<KubernetesObject>(`/api/v1/namespaces/${namespace}`);
        const { spec: rule } = await api.get<{ spec: { egress?: object[]; ingress?: object[] } }>(policy());
        const ranges = await api.get<{ items: object[] }>(inNamespace('limitranges'));
        const closed = (rule.egress ?? []).length === 0 && (rule.ingress ?? []).length === 0;
        return (
          metadata.labels?.['pod-security.kubernetes.io/enforce'] === 'restricted' &&
          closed &&
          ranges.items.length === 1
        );
      },
      5_000,
    );
    const { metadata } = await api.get<KubernetesObject>(`/api/v1/namespaces/${namespace}`);
    expect(metadata.labels?.['other']).toBe('theirs');
    keeping.stop();

    await keep(tenancyObjects({ namespace, installation, tenancy: { pods: 9, cpu: '4' } })).ready();
    expect(await quotaOf()).toMatchObject({ pods: '9', 'limits.cpu': '4' });
    await keep(objects({ pods: 3 })).ready();
    expect(await quotaOf()).toMatchObject({ pods: '3' });
    expect(Object.keys(await quotaOf())).not.toContain('limits.cpu');
    expect(keeping.errors).toEqual([]);
  });

  it('lets the server alone in where guests are reached directly, as long as that is asked for', async () => {
    const read = () => api.get<KubernetesObject & { spec: { ingress?: object[] } }>(policy());
    const keeping = keep(
      objects({ pods: 7, direct: { port: 7071, namespace: 'cay', labels: { app: 'cay' } } }),
      50,
    );
    await keeping.ready();
    const from = {
      namespaceSelector: { matchLabels: { 'kubernetes.io/metadata.name': 'cay' } },
      podSelector: { matchLabels: { app: 'cay' } },
    };
    const ingress = [{ from: [from], ports: [{ port: 7071, protocol: 'TCP' }] }];
    const { spec: rule, metadata } = await read();
    expect(rule.ingress).toEqual(ingress);
    await new Promise((resolve) => setTimeout(resolve, 300));
    expect((await read()).metadata.resourceVersion).toBe(metadata.resourceVersion);
    await api.patch(policy(), { spec: { ingress: [{}] } });
    await expect.poll(async () => (await read()).spec.ingress, { timeout: 5_000 }).toEqual(ingress);
    keeping.stop();
    await keep(objects()).ready();
    expect((await read()).spec.ingress ?? []).toEqual([]);
    expect(keeping.errors).toEqual([]);
  });

  it('writes nothing where nothing differs', async () => {
    await keep(objects()).ready();
    const versions = () =>
      Promise.all(
        objects().map(
          async (object) => (await api.get<KubernetesObject>(pathOf(object))).metadata.resourceVersion,
        ),
      );
    // The cluster itself notes in the quota what is used of it.
    const quota = () => api.get<{ status?: { hard?: object } }>(inNamespace('resourcequotas/cay-sandboxes'));
    await until('the cluster has counted', async () => (await quota()).status?.hard !== undefined, 5_000);
    const settled = await versions();
    await keep(objects()).ready();
    expect(await versions()).toEqual(settled);
  });

  it('leaves what belongs to others alone', async () => {
    await api.createNamespace(namespace);
    const before = await api.get<KubernetesObject>(`/api/v1/namespaces/${namespace}`);
    await expect(keep(objects()).ready()).rejects.toMatchObject({
      code: 'failed_precondition',
      details: { reason: 'foreign_object', kind: 'Namespace' },
      hint: expect.stringContaining('kubectl label namespace'),
    });
    expect(await api.get(`/api/v1/namespaces/${namespace}`)).toEqual(before);
    const backend = await open();
    await begin(backend);
    expect((await api.get<{ items: object[] }>(inNamespace('resourcequotas'))).items).toEqual([]);
  });

  it('says that the quota is used up', async () => {
    const backend = await open({ tenancy: { pods: 0 } });
    await expect(backend.ensure(newId('sbx'), spec)).rejects.toMatchObject({
      details: { reason: 'quota_exceeded' },
    });
  });

  const accountOf = (declared: Declared[]) => accountKubeconfig(cluster, api, declared);
  const rights = [...RIGHTS, ...TENANCY_RIGHTS];
  const rbac = (account: string, given = rights) =>
    rbacObjects({
      installation: account,
      namespace,
      rights: given,
      account: { name: account, namespace: 'cay' },
      perProject: false,
    });

  it('needs no more rights than those that are printed: with them a sandbox is made, kept and removed', async () => {
    await keep(objects()).ready();
    const kubeconfig = await accountOf(rbac('enough'));
    const backend = await open({ kubeconfig, tenancy: { pods: 7 } });
    expect((await backend.capabilities()).runtimes).toEqual(['default']);
    const id = await begin(backend);
    expect((await backend.list()).map((each) => each.id)).toEqual([id]);
    await backend.remove(id);
    expect(await api.names(namespace)).toEqual([]);
    const weak = await kubernetesClient({ kubeconfig });
    closing.push(() => weak.close());
    for (const path of [
      `/api/v1/namespaces/${namespace}/secrets`,
      '/api/v1/namespaces/cay/pods',
      '/api/v1/namespaces',
      '/api/v1/namespaces/cay',
    ]) {
      await expect(weak.json('GET', path, { action })).rejects.toMatchObject({ code: 'permission_denied' });
    }
  });

  it('names each right that is missing', async () => {
    await keep(objects()).ready();
    const needed = rights.filter(({ optional }) => !optional);
    for (const [at, { group, resource, subresource, verbs }] of needed.entries()) {
      const without = rights.filter((right) => right !== needed[at]);
      const backend = await open({
        kubeconfig: await accountOf(rbac(`lacks-${at}`, without)),
        tenancy: { pods: 7 },
      });
      const named = verbs.map(
        (verb) => `${verb} ${resource}${subresource ? `/${subresource}` : ''}${group ? `.${group}` : ''}`,
      );
      await expect(backend.capabilities()).rejects.toMatchObject({
        code: 'permission_denied',
        details: { rights: named },
      });
    }
  });

  async function render(...args: string[]): Promise<Declared[]> {
    const env = {
      ...process.env,
      KUBECONFIG: cluster.kubeconfig,
      CAY_KUBERNETES_GUEST_IMAGE: 'guest:1',
      CAY_KUBERNETES_BASE_IMAGE: 'base:1',
      CAY_KUBERNETES_NAMESPACE: namespace,
      CAY_KUBERNETES_INSTALLATION: installation,
      CAY_KUBERNETES_QUOTA_PODS: '7',
      CAY_KUBERNETES_TENANCY: 'installation',
    };
    const { stdout } = await run(process.execPath, [MAIN, 'kubernetes', 'render', ...args], { env });
    return fromYaml(stdout);
  }

  it('prints what the backend applies, and the API server takes it', async () => {
    // With what the settings say where nothing is said.
    const usual = objects({ pods: 7, claims: 100, storage: String(1000 * 1024 ** 3) });
    await keep(usual).ready();
    const printed = await render();
    expect(printed.slice(0, 4)).toEqual(usual);
    expect(printed.slice(4)).toEqual(
      rbacObjects({
        installation,
        namespace,
        rights,
        account: { name: 'cay', namespace: 'cay' },
        perProject: false,
      }),
    );
    for (const object of printed) {
      const query = { fieldManager: 'cay', dryRun: 'All' };
      const taken = (await client.json('PATCH', pathOf(object), {
        action,
        query,
        body: object,
        type: APPLY,
      })) as KubernetesObject;
      const live = printed.indexOf(object) < 4 ? await api.get<KubernetesObject>(pathOf(object)) : undefined;
      // Nothing of what is there would change.
      if (live) expect(taken).toEqual(live);
    }
  });

  it('has manifests that the API server takes, with a pod that Pod Security takes too', async () => {
    const file = new URL('../../packaging/kubernetes/manifests/cay.yaml', import.meta.url);
    const manifests = fromYaml<Declared>(await readFile(file, 'utf8'));
    const query = { fieldManager: 'test', dryRun: 'All' };
    // A dry run makes no namespace for what comes after it.
    const here = JSON.parse(
      JSON.stringify(manifests).replaceAll('"cay-sandboxes"', `"${namespace}"`),
    ) as Declared[];
    await api.createNamespace(namespace);
    for (const object of here) {
      const taken = (await client.json('PATCH', pathOf(object), {
        action,
        query,
        body: object,
        type: APPLY,
      })) as Declared;
      expect(taken).toMatchObject({ kind: object.kind, metadata: object.metadata });
    }
    const { spec: deployed } = here.find(({ kind }) => kind === 'Deployment') as unknown as {
      spec: { template: { spec: object } };
    };
    const pod = {
      apiVersion: 'v1',
      kind: 'Pod',
      metadata: { name: 'server' },
      spec: { ...deployed.template.spec, serviceAccountName: 'default' },
    };
    await expect(api.create(inNamespace('pods?dryRun=All'), pod)).resolves.toBeDefined();
  });

  it('prints the Job that the backend makes of a spec', async () => {
    const backend = await open({ tenancy: { pods: 7 } });
    const id = await begin(backend);
    const [printed] = await render('--sandbox', '--id', id);
    const made = await api.get<KubernetesObject & { spec: { template: { spec: object } } }>(
      `/apis/batch/v1/namespaces/${namespace}/jobs/${objectName(id)}`,
    );
    const again = { ...printed, metadata: { ...printed!.metadata, name: 'again' } };
    const jobs = `/apis/batch/v1/namespaces/${namespace}/jobs?dryRun=All`;
    const taken = (await api.create(jobs, again)) as typeof made;
    expect(taken.spec.template.spec).toEqual(made.spec.template.spec);
    expect(made.metadata.labels).toMatchObject(printed!.metadata.labels!);
    expect(made.metadata.annotations).toMatchObject(printed!.metadata.annotations!);
  });
});
