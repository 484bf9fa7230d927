/**
 * Projects in namespaces of their own, on a real API server, with an account that has no rights but those
 * that are printed.
 */
import { newId, SandboxSpecSchema, type SandboxId } from '@cay/sdk/protocol';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import type { Backend } from '../../server/src/backends/backend.ts';
import { kubernetesJobBackend } from '../../server/src/backends/kubernetes/job/kubernetes-job.ts';
import { RIGHTS } from '../../server/src/backends/kubernetes/job/needs.ts';
import { pathOf, type Declared } from '../../server/src/backends/kubernetes/client/apply.ts';
import { neededRights } from '../../server/src/backends/kubernetes/tenancy/declarations.ts';
import {
  kubernetesClient,
  type KubernetesClient,
} from '../../server/src/backends/kubernetes/client/kubernetes-client.ts';
import { projectNamespace, volumeClaimName } from '../../server/src/backends/kubernetes/client/names.ts';
import type { KubernetesObject, List } from '../../server/src/backends/kubernetes/client/objects.ts';
import { rbacObjects } from '../../server/src/backends/kubernetes/tenancy/rbac.ts';
import { projectRights, tenancyObjects } from '../../server/src/backends/kubernetes/tenancy/tenancy.ts';
import { until } from '../conformance/box.ts';
import { rejects } from '../conformance/suite.ts';
import { accountKubeconfig, APPLY } from './cluster/account-kubeconfig.ts';
import { startCluster, whyNoCluster, type Cluster } from './cluster/cluster.ts';
import { kubectl, type Kubectl } from './cluster/kubectl.ts';

const why = await whyNoCluster('control-plane');
if (why !== undefined) console.info(`projects on a cluster: skipped: ${why}`);

const spec = SandboxSpecSchema.parse({ limits: { diskBytes: null, pids: null } });
const tenancy = { pods: 7, perProject: true };
const action = 'look behind the backend';

describe.skipIf(why !== undefined)('projects on a cluster', () => {
  let cluster: Cluster;
  let api: Kubectl;
  let namespace: string;
  let installation: string;
  let account: { name: string; namespace: string };
  let closing: (() => unknown)[];
  const [red, blue] = [newId('prj'), newId('prj')];

  beforeAll(async () => {
    cluster = await startCluster('control-plane');
    api = await kubectl(cluster);
    await api.createNamespace('cay');
  });
  afterAll(async () => {
    api?.close();
    await cluster?.stop();
  });
  beforeEach(() => {
    closing = [];
    installation = newId('sbx').slice(4, 12).toLowerCase();
    namespace = `boxes-${installation}`;
    account = { name: `server-${installation}`, namespace: 'cay' };
  });
  afterEach(async () => {
    for (const close of closing) await close();
    for (const project of [red, blue])
      await api.remove(`/api/v1/namespaces/${projectNamespace(namespace, project)}`);
    await api.remove(`/api/v1/namespaces/${namespace}`);
  });

  const rights = () => neededRights(RIGHTS, { tenancy, installation });
  const installed = (given = rights()) => [
    tenancyObjects({ namespace, installation, tenancy })[0]!,
    ...rbacObjects({ installation, namespace, rights: given, account, perProject: true }),
  ];

  /** As the server that an administrator has installed. */
  async function open(objects: Declared[] = installed()): Promise<Backend & { client: KubernetesClient }> {
    const kubeconfig = await accountKubeconfig(cluster, api, objects);
    const images = { guestImage: 'guest:1', baseImage: 'base:1' };
    const backend = await kubernetesJobBackend({ kubeconfig, namespace, installation, tenancy, ...images });
    const client = await kubernetesClient({ kubeconfig });
    closing.push(
      () => client.close(),
      () => backend.close(),
    );
    return { ...backend, client };
  }

  /** Starts a sandbox, which on a cluster without nodes goes no further than its pod. */
  async function begin(backend: Backend, project: string): Promise<SandboxId> {
    const id = newId('sbx');
    const aborter = new AbortController();
    const ended = backend
      .ensure(id, spec, { signal: aborter.signal, project })
      .catch((error: unknown) => error);
    const there = async () => (await api.pods(projectNamespace(namespace, project), id)).length > 0;
    await Promise.race([
      until('there is a pod', there, 20_000),
      ended.then((error) => Promise.reject(error as Error)),
    ]);
    closing.unshift(async () => {
      aborter.abort();
      await ended;
    });
    return id;
  }

  it('keeps the sandboxes of each project in a namespace of its own, with bounds of its own', async () => {
    const backend = await open();
    expect((await backend.capabilities()).runtimes).toEqual(['default']);
    const [one, other] = [await begin(backend, red), await begin(backend, blue)];
    for (const [project, id] of [
      [red, one],
      [blue, other],
    ] as const) {
      const home = projectNamespace(namespace, project);
      const { metadata } = await api.get<KubernetesObject>(`/api/v1/namespaces/${home}`);
      expect(metadata.labels).toMatchObject({
        'pod-security.kubernetes.io/enforce': 'restricted',
        'cay.dev/project': project,
      });
      const quotas = await api.get<List<{ spec: { hard: object } }>>(
        `/api/v1/namespaces/${home}/resourcequotas`,
      );
      expect(quotas.items.map(({ spec: { hard } }) => hard)).toMatchObject([{ pods: '7' }]);
      const policies = await api.get<List<{ spec: object }>>(
        `/apis/networking.k8s.io/v1/namespaces/${home}/networkpolicies`,
      );
      expect(policies.items.map((each) => each.spec)).toMatchObject([
        { podSelector: {}, policyTypes: ['Ingress', 'Egress'] },
      ]);
      const [pod] = await api.pods(home, id);
      expect(pod!.metadata.labels).toMatchObject({
        'cay.dev/project': project,
        'cay.dev/installation': installation,
      });
    }
    expect(await api.names(namespace)).toEqual([]);
  });

  it('finds every sandbox again after a start, without the id of its project', async () => {
    const first = await open();
    const [one, other] = [await begin(first, red), await begin(first, blue)];
    const next = await open();
    // Nobody has listed anything yet.
    expect((await next.observe(one)).phase).toBe('starting');
    expect((await next.list()).map(({ id }) => id).toSorted()).toEqual([one, other].toSorted());
    expect((await next.observe(newId('sbx'))).phase).toBe('absent');
    await next.remove(newId('sbx'));
    await next.remove(one);
    expect(await api.names(projectNamespace(namespace, red))).toEqual([]);
    expect((await next.list()).map(({ id }) => id)).toEqual([other]);
    await next.remove(other);
  });

  it('keeps the volumes of each project in its namespace, and finds them again after a start', async () => {
    const volumes = (await open()).ability('volumes')!;
    const [one, other] = [newId('vol'), newId('vol')];
    await volumes.createVolume(one, { sizeBytes: null, project: red });
    await volumes.createVolume(other, { sizeBytes: null, project: blue });
    const claims = async (project: string) =>
      (await api.names(projectNamespace(namespace, project))).filter((name) => name.startsWith('persistent'));
    expect(await claims(red)).toEqual([`persistentvolumeclaims/${volumeClaimName(one)}`]);
    const backend = await open();
    const next = backend.ability('volumes')!;
    expect(await next.inspectVolume(one, { project: red })).toMatchObject({ id: one });
    expect((await next.listVolumes()).map(({ id }) => id).toSorted()).toEqual([one, other].toSorted());
    await rejects(next.inspectVolume(one, { project: blue }), 'not_found');
    const mounts = [{ type: 'volume' as const, volume: one, path: '/data', readOnly: false }];
    await backend.validate({ ...spec, mounts }, { project: red });
    await rejects(backend.validate({ ...spec, mounts }, { project: blue }), 'not_found');
    expect((await backend.capabilities()).abilities).toMatchObject({ volumes: true, volumeSize: false });
    await rejects(next.createVolume(newId('vol'), { sizeBytes: 1 << 30, project: red }), 'unsupported');
    await next.removeVolume(one, { project: red });
    expect([await claims(red), await claims(blue)]).toMatchObject([[], [expect.any(String)]]);
    await next.removeVolume(other, { project: blue });
    expect(await next.listVolumes()).toEqual([]);
  });

  it('does without volumes where the account may make no claims, and says so', async () => {
    const backend = await open(
      installed(rights().filter(({ resource }) => resource !== 'persistentvolumeclaims')),
    );
    const { abilities, notes } = await backend.capabilities();
    expect(abilities.volumes).toBe(false);
    expect(notes.volumes).toContain('cay kubernetes render');
    const volumes = backend.ability('volumes')!;
    await rejects(volumes.createVolume(newId('vol'), { sizeBytes: null, project: red }), 'permission_denied');
    await begin(backend, red);
  });

  it('may touch no namespace but its own, whatever its rights are called', async () => {
    const { client, ...backend } = await open();
    const id = await begin(backend, red);
    const own = projectNamespace(namespace, red);
    const merge = 'application/merge-patch+json';
    const label = { metadata: { labels: { 'cay.dev/installation': installation } } };
    const binding = (where: string) => ({
      apiVersion: 'rbac.authorization.k8s.io/v1',
      kind: 'RoleBinding',
      metadata: { name: 'mine', namespace: where },
      roleRef: {
        apiGroup: 'rbac.authorization.k8s.io',
        kind: 'ClusterRole',
        name: `cay-sandboxes-${installation}`,
      },
      subjects: [{ kind: 'ServiceAccount', ...account }],
    });
    // The API server takes a policy up a moment after it was made, as it does with rights.
    const dry = { action, query: { dryRun: 'All' }, body: label, type: merge };
    const holds = () =>
      client.json('PATCH', '/api/v1/namespaces/cay', dry).then(
        () => false,
        () => true,
      );
    await until('the policy holds', holds);
    const denied = { code: 'permission_denied' };
    const refused = { message: expect.stringContaining('no namespaces but its own') as string };
    await expect(client.json('GET', '/api/v1/namespaces/cay/pods', { action })).rejects.toMatchObject(denied);
    await expect(client.json('GET', `/api/v1/namespaces/${own}/secrets`, { action })).rejects.toMatchObject(
      denied,
    );
    await expect(client.json('DELETE', `/api/v1/namespaces/${own}`, { action })).rejects.toMatchObject(
      denied,
    );
    await expect(
      client.json('PATCH', '/api/v1/namespaces/cay', { action, body: label, type: merge }),
    ).rejects.toMatchObject(refused);
    const loose = { metadata: { labels: { 'pod-security.kubernetes.io/enforce': 'privileged' } } };
    await expect(
      client.json('PATCH', `/api/v1/namespaces/${own}`, { action, body: loose, type: merge }),
    ).rejects.toMatchObject({
      message: expect.stringContaining('pods are not restricted') as string,
    });
    const plain = { apiVersion: 'v1', kind: 'Namespace', metadata: { name: `plain-${installation}` } };
    await expect(client.json('POST', '/api/v1/namespaces', { action, body: plain })).rejects.toMatchObject(
      refused,
    );
    const bindings = (where: string) => `/apis/rbac.authorization.k8s.io/v1/namespaces/${where}/rolebindings`;
    await expect(
      client.json('POST', bindings('cay'), { action, body: binding('cay') }),
    ).rejects.toMatchObject(refused);
    const stronger = { ...binding(own), roleRef: { ...binding(own).roleRef, name: 'cluster-admin' } };
    await expect(client.json('POST', bindings(own), { action, body: stronger })).rejects.toMatchObject(
      denied,
    );
    expect((await api.pods(own, id)).length).toBe(1);
  });

  it.each(projectRights('any').map(({ resource }) => resource))(
    'names the rights to %s if they are missing',
    async (resource) => {
      const all = rights();
      const right = all.find((each) => each.clusterWide && each.resource === resource)!;
      const backend = await open(installed(all.filter((each) => each !== right)));
      const named = right.verbs.map((verb) => `${verb} ${resource}${right.group ? `.${right.group}` : ''}`);
      await expect(backend.capabilities()).rejects.toMatchObject({
        code: 'permission_denied',
        details: { rights: named },
      });
    },
  );

  it('leaves alone a namespace of that name that has another owner', async () => {
    const backend = await open();
    const foreign = projectNamespace(namespace, red);
    await api.createNamespace(foreign);
    await expect(backend.ensure(newId('sbx'), spec, { project: red })).rejects.toMatchObject({
      code: 'failed_precondition',
      details: { reason: 'foreign_object', kind: 'Namespace' },
    });
    expect(
      (await api.get<KubernetesObject>(`/api/v1/namespaces/${foreign}`)).metadata.labels,
    ).not.toHaveProperty('cay.dev/installation');
  });

  it('prints what the namespace of a project has, and the API server takes it', async () => {
    const client = await kubernetesClient({ kubeconfig: cluster.kubeconfig });
    closing.push(() => client.close());
    for (const object of installed()) {
      const query = { fieldManager: 'cay', dryRun: 'All' };
      // A dry run makes no namespace for what comes after it.
      if (object.metadata.namespace !== undefined) object.metadata.namespace = 'cay';
      const taken = (await client.json('PATCH', pathOf(object), {
        action,
        query,
        body: object,
        type: APPLY,
      })) as Declared;
      expect(taken).toMatchObject({ kind: object.kind, metadata: object.metadata });
    }
  });
});
