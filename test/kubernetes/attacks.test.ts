/**
 * Attacks on the node, its neighbours and the cluster: by code in a pod, by a client that asks for one, and
 * by an intruder with the server's account.
 */
import { execFile } from 'node:child_process';
import { promisify } from 'node:util';
import { newId, SandboxSpecSchema, type SandboxId, type SandboxSpecInput } from '@cay/sdk/protocol';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { agentSandboxBackend } from '../../server/src/backends/kubernetes/agent-sandbox/agent-sandbox.ts';
import type { Backend } from '../../server/src/backends/backend.ts';
import { kubernetesJobBackend } from '../../server/src/backends/kubernetes/job/kubernetes-job.ts';
import { RIGHTS } from '../../server/src/backends/kubernetes/job/needs.ts';
import { neededRights } from '../../server/src/backends/kubernetes/tenancy/declarations.ts';
import { kubernetesClient } from '../../server/src/backends/kubernetes/client/kubernetes-client.ts';
import type { List, Pod } from '../../server/src/backends/kubernetes/client/objects.ts';
import { rbacObjects } from '../../server/src/backends/kubernetes/tenancy/rbac.ts';
import type { KubernetesSettings } from '../../server/src/backends/kubernetes/settings.ts';
import { tenancyObjects } from '../../server/src/backends/kubernetes/tenancy/tenancy.ts';
import { drain, until } from '../conformance/box.ts';
import { accountKubeconfig } from './cluster/account-kubeconfig.ts';
import { startCluster, whyNoCluster, type Cluster } from './cluster/cluster.ts';
import { kubectl, type Kubectl } from './cluster/kubectl.ts';
import { BASE_IMAGE, GUEST_IMAGE, importSandboxImages } from './cluster/sandbox-images.ts';

const options = { agentSandbox: true, diskSeconds: 2 };
const why = await whyNoCluster('full', options);
if (why !== undefined) console.info(`attacks of pods: skipped: ${why}`);
const whyNoGvisor = why ?? (await whyNoCluster('full', { ...options, gvisor: true }));
if (whyNoGvisor !== why) console.info(`attacks of pods on gVisor: skipped: ${whyNoGvisor}`);

const run = promisify(execFile);
const MiB = 1024 * 1024;
const RUNTIMES = [undefined, ...(whyNoGvisor === undefined ? ['gvisor'] : [])];
const FILLING: [what: string, shell: string][] = [
  [
    'several places, each within the limit',
    'for place in /tmp /home/user /var/tmp /run; do head -c 40M /dev/zero > $place/big; done',
  ],
  ['one directory', 'head -c 96M /dev/zero > /tmp/big'],
];
/** The kubelet looks every ten seconds at what it knows, and that is as old as it is told to be. */
const EVICTION_MS = 90_000;
const installation = 'attacked';
const action = 'attack the cluster';

describe.skipIf(why !== undefined)('attacks of pods', () => {
  let cluster: Cluster;
  let api: Kubectl;
  const opened: { close(): unknown }[] = [];

  beforeAll(async () => {
    cluster = await startCluster('full', options);
    api = await kubectl(cluster);
    await importSandboxImages(cluster);
    if (cluster.whyNoGvisor === undefined) await api.createRuntimeClass('gvisor');
  });
  afterAll(async () => {
    for (const each of opened) await each.close();
    api?.close();
    await cluster?.stop();
  });

  async function open(
    namespace: string,
    more: Partial<KubernetesSettings> = {},
    backendOf = kubernetesJobBackend,
  ): Promise<Backend> {
    const images = { guestImage: GUEST_IMAGE, baseImage: BASE_IMAGE, pullPolicy: 'Never' as const };
    const common = {
      kubeconfig: cluster.kubeconfig,
      namespace,
      installation,
      tenancy: { pods: 9 },
      ...images,
    };
    const backend = await backendOf({ ...common, ...more });
    opened.push(backend);
    return backend;
  }

  const specOf = ({ limits, ...more }: SandboxSpecInput = {}) =>
    SandboxSpecSchema.parse({
      ...more,
      limits: { cpus: 0.5, memoryBytes: 128 * MiB, pids: null, ...limits },
    });

  async function make(backend: Backend, spec?: SandboxSpecInput): Promise<SandboxId> {
    const id = newId('sbx');
    await backend.ensure(id, specOf(spec));
    return id;
  }

  async function sh(backend: Backend, id: SandboxId, shell: string) {
    const guest = await backend.connect(id);
    return drain(await guest.exec({ id: newId('cmd'), shell, env: {}, workdir: '/', user: 'user' }));
  }

  describe.each(RUNTIMES)('on the disk of the node, on runtime %s', (runtime) => {
    const limits = { diskBytes: 64 * MiB };

    // What the node counts is the same on every runtime.
    it.each(runtime === undefined ? FILLING : FILLING.slice(0, 1))(
      'one that fills %s is evicted, and its neighbour is not',
      async (_, shell) => {
        const backend = await open('disk');
        const [greedy, neighbour] = await Promise.all([
          make(backend, { runtime, limits }),
          make(backend, { runtime, limits }),
        ]);
        expect(await backend.stats(greedy)).toMatchObject({ diskLimitBytes: 64 * MiB });
        await sh(backend, neighbour, 'head -c 16M /dev/zero > /tmp/kept');
        await sh(backend, greedy, shell).catch(() => {});
        await until(
          'it has failed',
          async () => (await backend.observe(greedy)).phase === 'failed',
          EVICTION_MS,
        );
        expect(await backend.observe(greedy)).toMatchObject({
          reason: 'disk_full',
          message: expect.stringContaining('exceeds') as string,
        });
        expect(await backend.observe(neighbour)).toMatchObject({ phase: 'ready' });
        expect((await sh(backend, neighbour, 'wc -c < /tmp/kept')).stdout).toBe('16777216\n');
        await Promise.all([greedy, neighbour].map((id) => backend.remove(id)));
      },
      180_000,
    );

    it('nothing that no limit counts can be written', async () => {
      const backend = await open('disk');
      const id = await make(backend, { runtime, limits });
      const found = await sh(
        backend,
        id,
        'find / -xdev -type f -writable 2>/dev/null | grep -v ^/proc; cat /proc/self/mountinfo',
      );
      const writable = found.stdout.split('\n').filter((line) => line.startsWith('/'));
      expect(writable).toEqual([]);
      const tries = [
        '/dev/termination-log',
        '/.cay/closed/file',
        '/.cay/x',
        '/etc/hosts',
        '/etc/resolv.conf',
        '/etc/hostname',
        '/etc/passwd',
      ];
      for (const path of tries) {
        const { exitCode } = await sh(
          backend,
          id,
          `chmod 777 ${path.slice(0, path.lastIndexOf('/'))}; head -c 1 /dev/zero > ${path}`,
        );
        expect(exitCode, path).not.toBe(0);
      }
      await backend.remove(id);
    });
  });

  it('more disk than the quota has, or than one sandbox may have, is refused', async () => {
    const backend = await open('quota', {
      tenancy: { pods: 9, disk: '100Mi', maxDisk: '64Mi', diskBytes: 64 * MiB },
      diskBytes: 64 * MiB,
    });
    // One that asks for nothing has the usual.
    const id = await make(backend, { limits: { diskBytes: null } });
    const refused = (diskBytes: number | null) => make(backend, { limits: { diskBytes } });
    await expect(refused(64 * MiB)).rejects.toMatchObject({
      code: 'resource_exhausted',
      details: { reason: 'quota_exceeded' },
    });
    await expect(refused(null)).rejects.toMatchObject({ details: { reason: 'quota_exceeded' } });
    await expect(refused(65 * MiB)).rejects.toMatchObject({
      code: 'resource_exhausted',
      details: { reason: 'limit_range' },
    });
    await backend.remove(id);
  });

  it('a working directory that is not the sandbox’s to have is refused before anything is made', async () => {
    const backend = await open('workdir');
    const paths = [
      '/.cay',
      '/.cay-run',
      '/etc',
      '/proc',
      '/dev',
      '/sys/fs',
      '/work:ro',
      `/${'a/'.repeat(2000)}`,
      '/tmp/../etc',
    ];
    for (const workdir of paths) {
      await expect(backend.validate(specOf({ workdir })), workdir).rejects.toMatchObject({
        code: 'invalid_argument',
      });
      await expect(make(backend, { workdir }), workdir).rejects.toMatchObject({ code: 'invalid_argument' });
    }
    expect(await api.names('workdir')).toEqual([]);
    const id = await make(backend, { workdir: '/usr/src/app' });
    expect((await sh(backend, id, 'cd /usr/src/app && echo x > file && cat file')).stdout).toBe('x\n');
    await backend.remove(id);
  });

  describe('on the network', () => {
    const inCluster = (program: string, ...args: string[]) => {
      const [enter, ...words] = [...cluster.enter, program, ...args];
      return run(enter!, words);
    };
    const settled = async (backend: Backend) => {
      const network = async () => (await backend.capabilities()).enforcement!.network;
      await until('it was tried', async () => (await network()).state !== 'unknown', 60_000);
      return network();
    };
    const strict = { probeNetwork: true, requireNetworkPolicy: true };
    const isEmpty = (namespace: string) =>
      until('nothing is left', async () => (await api.names(namespace)).length === 0, 30_000);

    it.each([
      ['kubernetes-job', kubernetesJobBackend],
      ['agent-sandbox', agentSandboxBackend],
    ] as const)(
      '%s says that a cluster enforces nothing, and starts nothing there if that is demanded',
      async (name, backendOf) => {
        const namespace = `open-${name}`;
        const begun = performance.now();
        const backend = await open(namespace, strict, backendOf as typeof kubernetesJobBackend);
        expect((await backend.capabilities()).enforcement?.network.state).toBe('unknown');
        const knownMs = performance.now() - begun;
        const id = newId('sbx');
        const refused = {
          code: 'failed_precondition',
          details: { reason: 'network_policy_not_enforced', state: 'not_enforced' },
        };
        await expect(backend.ensure(id, specOf())).rejects.toMatchObject(refused);
        await expect(backend.validate(specOf())).rejects.toMatchObject(refused);
        expect(await backend.observe(id)).toMatchObject({ phase: 'absent' });
        expect(await settled(backend)).toMatchObject({
          state: 'not_enforced',
          reason: expect.stringContaining('another pod') as string,
        });
        console.info(
          `${name}: opened in ${Math.round(knownMs)} ms, tried after ${Math.round(performance.now() - begun)} ms`,
        );
        expect(await backend.list()).toEqual([]);
        await isEmpty(namespace);
      },
    );

    it('says that one enforces them, and a sandbox there reaches nothing', async ({ skip }) => {
      // What a network plugin would do, done to the node by hand.
      const rule = ['FORWARD', '-p', 'IPv4', '-j', 'DROP'];
      await inCluster('ebtables', '-A', ...rule).catch((error: unknown) =>
        skip(`no ebtables: ${(error as Error).message}`),
      );
      try {
        await inCluster('ebtables', '-A', 'INPUT', '-p', 'IPv4', '-j', 'DROP');
        const backend = await open('closed', strict);
        const [one, other] = await Promise.all([make(backend), make(backend)]);
        expect(await settled(backend)).toMatchObject({
          state: 'enforced',
          reason: expect.stringContaining('the metadata service') as string,
        });
        const { podIP } = (await api.pods('closed', other))[0]!.status!;
        const targets = [
          `${podIP}:7071`,
          '169.254.169.254:80',
          '10.89.0.1:20250',
          '10.89.0.1:7070',
          '10.88.0.1:16443',
        ];
        const { stdout } = await sh(backend, one, `/.cay/guest reach 1000 ${targets.join(' ')}`);
        expect(stdout.trim().split('\n')).toHaveLength(targets.length);
        expect(stdout).not.toContain('reached');
        await Promise.all([one, other].map((id) => backend.remove(id)));
        await isEmpty('closed');
      } finally {
        await inCluster('ebtables', '-F');
      }
    });

    it('leaves nothing behind of an attempt that is given up', async () => {
      const backend = await open('given-up', strict);
      await backend.capabilities();
      await until('it has begun', async () => (await api.names('given-up')).length > 0);
      await backend.close();
      await isEmpty('given-up');
    });
  });

  describe('with the account of the server', () => {
    const account = { name: 'server', namespace: 'cay' };
    const tenancy = { pods: 7, perProject: true };
    const namespace = 'boxes';
    const installed = () => [
      tenancyObjects({ namespace, installation, tenancy })[0]!,
      ...rbacObjects({
        installation,
        namespace,
        rights: neededRights(RIGHTS, { tenancy, installation }),
        account,
        perProject: true,
      }),
    ];

    it('nothing but its own namespaces can be had, nor a pod that has the node; without its policy it does not start', async () => {
      await api.createNamespace('cay');
      const kubeconfig = await accountKubeconfig(cluster, api, installed());
      const backend = await open(namespace, { kubeconfig, tenancy });
      await backend.capabilities();
      const client = await kubernetesClient({ kubeconfig });
      opened.push(client);
      const denied = (method: string, path: string, body?: object, type?: string) =>
        expect(client.json(method, path, { action, body, type }), `${method} ${path}`).rejects.toMatchObject({
          code: expect.stringMatching(/permission_denied|failed_precondition|invalid_argument/) as string,
        });
      const merge = 'application/merge-patch+json';
      const named = (name: string, labels: object) => ({
        apiVersion: 'v1',
        kind: 'Namespace',
        metadata: { name, labels },
      });
      const ours = { 'cay.dev/installation': installation };
      const enforce = 'pod-security.kubernetes.io/enforce';
      await denied('POST', '/api/v1/namespaces', named('unlabelled', {}));
      await denied('POST', '/api/v1/namespaces', named('privileged', { ...ours, [enforce]: 'privileged' }));
      await denied(
        'PATCH',
        `/api/v1/namespaces/${namespace}`,
        { metadata: { labels: { [enforce]: 'privileged' } } },
        merge,
      );
      await denied('PATCH', '/api/v1/namespaces/kube-system', { metadata: { labels: ours } }, merge);
      const binding = (where: string, role: string) => ({
        apiVersion: 'rbac.authorization.k8s.io/v1',
        kind: 'RoleBinding',
        metadata: { name: 'mine', namespace: where },
        roleRef: { apiGroup: 'rbac.authorization.k8s.io', kind: 'ClusterRole', name: role },
        subjects: [{ kind: 'ServiceAccount', ...account }],
      });
      const bindings = (where: string) =>
        `/apis/rbac.authorization.k8s.io/v1/namespaces/${where}/rolebindings`;
      await denied('POST', bindings(namespace), binding(namespace, 'cluster-admin'));
      await denied('POST', bindings('kube-system'), binding('kube-system', `cay-sandboxes-${installation}`));
      for (const path of ['pods', 'secrets', 'configmaps'])
        await denied('GET', `/api/v1/namespaces/kube-system/${path}`);
      for (const path of ['secrets', 'serviceaccounts/default/token'])
        await denied('GET', `/api/v1/namespaces/${namespace}/${path}`);
      await expect(
        client.socket('/api/v1/namespaces/kube-system/pods/any/exec', {
          action,
          query: { command: 'sh', stdout: true },
        }),
      ).rejects.toMatchObject({ code: 'permission_denied' });
      await denied('GET', '/api/v1/nodes');
      await denied('POST', `/api/v1/namespaces/${namespace}/pods`, {
        apiVersion: 'v1',
        kind: 'Pod',
        metadata: { name: 'x' },
      });

      // A Job is taken as it is; its pods are not.
      const pods = {
        'host-network': { hostNetwork: true },
        'host-path': { volumes: [{ name: 'host', hostPath: { path: '/' } }] },
        privileged: {
          containers: [{ name: 'c', image: GUEST_IMAGE, securityContext: { privileged: true } }],
        },
      };
      for (const [name, more] of Object.entries(pods)) {
        const spec = { restartPolicy: 'Never', containers: [{ name: 'c', image: GUEST_IMAGE }], ...more };
        const body = {
          apiVersion: 'batch/v1',
          kind: 'Job',
          metadata: { name },
          spec: { template: { spec } },
        };
        await client.json('POST', `/apis/batch/v1/namespaces/${namespace}/jobs`, { action, body });
      }
      const refusals = async () =>
        (
          await api.get<List<{ reason: string; message: string; involvedObject: { name: string } } & Pod>>(
            `/api/v1/namespaces/${namespace}/events`,
          )
        ).items
          .filter(
            ({ reason, message }) => reason === 'FailedCreate' && message.includes('violates PodSecurity'),
          )
          .map(({ involvedObject }) => involvedObject.name);
      await until(
        'all pods are refused',
        async () => new Set(await refusals()).size === Object.keys(pods).length,
        30_000,
      );
      expect((await api.get<List<Pod>>(`/api/v1/namespaces/${namespace}/pods`)).items).toEqual([]);

      const policies = '/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies';
      await api.remove(`${policies}/cay-server-${installation}`);
      const plain = { action, query: { dryRun: 'All' }, body: named('plain', {}) };
      const isLoose = () =>
        client.json('POST', '/api/v1/namespaces', plain).then(
          () => true,
          () => false,
        );
      await until('the policy is gone', isLoose, 30_000);
      const unbounded = await open(namespace, { kubeconfig, tenancy });
      const refused = { code: 'failed_precondition', details: { reason: 'server_policy_missing' } };
      await expect(unbounded.capabilities()).rejects.toMatchObject(refused);
    }, 120_000);
  });
});
