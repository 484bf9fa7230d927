/**
 * An API server that is asked for too much, has forgotten the past, is written to by others, or has another
 * time than we.
 */
import { newId, SandboxSpecSchema, type SandboxId } from '@cay/sdk/protocol';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it, vi } from 'vitest';
import { agentSandboxBackend } from '../../server/src/backends/kubernetes/agent-sandbox/agent-sandbox.ts';
import type { AgentSandboxOptions } from '../../server/src/backends/kubernetes/agent-sandbox/settings.ts';
import type { Backend } from '../../server/src/backends/backend.ts';
import { kubernetesJobBackend } from '../../server/src/backends/kubernetes/job/kubernetes-job.ts';
import { kubernetesJobs } from '../../server/src/backends/kubernetes/job/jobs.ts';
import {
  kubernetesClient,
  type KubernetesClient,
} from '../../server/src/backends/kubernetes/client/kubernetes-client.ts';
import { mirror } from '../../server/src/backends/kubernetes/client/mirror.ts';
import { objectName } from '../../server/src/backends/kubernetes/client/names.ts';
import type { Job, KubernetesObject } from '../../server/src/backends/kubernetes/client/objects.ts';
import { statusOf } from '../../server/src/backends/kubernetes/workloads/workload-status.ts';
import { until } from '../conformance/box.ts';
import { startCluster, whyNoCluster, type Cluster } from './cluster/cluster.ts';
import { kubectl, type Kubectl } from './cluster/kubectl.ts';
import { meddlingRelay, type Asked, type Instead, type MeddlingRelay } from './cluster/meddling-relay.ts';

const why = await whyNoCluster('control-plane', { agentSandbox: true });
if (why !== undefined) console.info(`faults of an API server: skipped: ${why}`);

const spec = SandboxSpecSchema.parse({ limits: { diskBytes: null, pids: null } });
const HOUR_MS = 3_600_000;
const TOO_MANY: Instead = { status: 429, headers: { 'Retry-After': '1' }, reason: 'TooManyRequests' };

describe.skipIf(why !== undefined)('an API server', () => {
  let cluster: Cluster;
  let api: Kubectl;
  let relay: MeddlingRelay;
  let client: KubernetesClient;
  let namespace: string;
  let backends: Backend[];

  beforeAll(async () => {
    cluster = await startCluster('control-plane', { agentSandbox: true });
    api = await kubectl(cluster);
    relay = await meddlingRelay(cluster);
    client = await kubernetesClient({ kubeconfig: relay.kubeconfig });
  });
  afterAll(async () => {
    client?.close();
    await relay?.stop();
    api?.close();
    await cluster?.stop();
  });
  beforeEach(async () => {
    backends = [];
    namespace = await api.newNamespace('api');
  });
  afterEach(async () => {
    vi.restoreAllMocks();
    relay.meddle();
    for (const backend of backends) await backend.close();
    await api.remove(`/api/v1/namespaces/${namespace}`);
  });

  const KINDS = {
    'kubernetes-job': {
      open: kubernetesJobBackend,
      path: (id: SandboxId) => `/apis/batch/v1/namespaces/${namespace}/jobs/${objectName(id)}`,
      leftSeconds: (job: Job, nowMs: number) =>
        (job.spec?.activeDeadlineSeconds ?? 0) -
        (nowMs - Date.parse(job.status?.startTime ?? job.metadata.creationTimestamp!)) / 1000,
    },
    'agent-sandbox': {
      open: agentSandboxBackend,
      path: (id: SandboxId) =>
        `/apis/agents.x-k8s.io/v1beta1/namespaces/${namespace}/sandboxes/${objectName(id)}`,
      leftSeconds: (sandbox: KubernetesObject, nowMs: number) =>
        (Date.parse((sandbox as { spec?: { shutdownTime?: string } }).spec?.shutdownTime ?? '') - nowMs) /
        1000,
    },
  };

  async function open(kind: keyof typeof KINDS, more: Partial<AgentSandboxOptions> = {}): Promise<Backend> {
    const settings = {
      kubeconfig: relay.kubeconfig,
      namespace,
      guestImage: 'guest:1',
      baseImage: 'base:1',
      ...more,
    };
    const backend = await KINDS[kind].open(settings);
    backends.push(backend);
    return backend;
  }

  /** A sandbox that is being made, with a pod that no node takes. */
  async function begin(backend: Backend): Promise<SandboxId> {
    const id = newId('sbx');
    void backend.ensure(id, spec).catch(() => {});
    await until('there is a pod', async () => (await api.pods(namespace, id)).length > 0, 15_000);
    return id;
  }

  describe('that is asked for too much', () => {
    /** Refuses each kind of request once, watches included. */
    function onceEach(): { refused: string[]; how(asked: Asked): Instead | undefined } {
      const refused: string[] = [];
      return {
        refused,
        how({ method, url }) {
          const what = `${method} ${url.replace(/\?.*/, '')}${url.includes('watch=true') ? ' watch' : ''}`;
          if (refused.includes(what)) return undefined;
          refused.push(what);
          return TOO_MANY;
        },
      };
    }

    it.for(['kubernetes-job', 'agent-sandbox'] as const)(
      'is asked again when it said, for everything: %s',
      async (name) => {
        const { refused, how } = onceEach();
        relay.meddle(how);
        const backend = await open(name);
        const seen: string[] = [];
        const aborter = new AbortController();
        const watching = (async () => {
          for await (const { id, phase } of backend.watch({ signal: aborter.signal }))
            seen.push(`${id} ${phase}`);
        })();
        const id = await begin(backend);
        expect(await backend.observe(id)).toMatchObject({ phase: 'starting' });
        expect((await backend.list()).map((each) => each.id)).toEqual([id]);
        expect(refused.filter((what) => what.endsWith(' watch')).length).toBeGreaterThanOrEqual(2);
        await until('watches are open', () => relay.watches() >= 2, 20_000);
        // What happens behind our back is seen all the same.
        await api.remove(KINDS[name].path(id));
        await until('it is gone', async () => (await backend.observe(id)).phase === 'absent', 20_000);
        aborter.abort();
        await watching;
        const other = await begin(backend);
        await backend.remove(other);
        expect(await backend.list()).toEqual([]);
      },
    );

    it('for good is an error that says so, and comes soon', async () => {
      const backend = await open('kubernetes-job');
      relay.meddle(() => TOO_MANY);
      const at = performance.now();
      await expect(backend.observe(newId('sbx'))).rejects.toMatchObject({
        code: 'resource_exhausted',
        details: { status: 429 },
      });
      expect(performance.now() - at).toBeLessThan(30_000);
    });
  });

  it('that others write to all the time takes every note and renewal of ours, and loses none of theirs', async () => {
    const backend = await open('kubernetes-job');
    const id = await begin(backend);
    const path = KINDS['kubernetes-job'].path(id);
    const jobs = kubernetesJobs({ client, namespace, installation: 'default' });
    let writing = true;
    let written = 0;
    const others = Array.from({ length: 4 }, async (_, who) => {
      while (writing)
        await api.patch(path, { metadata: { annotations: { [`others/${who}`]: String(++written) } } });
    });
    // Now and then it is too much for it, and it says so.
    let patches = 0;
    relay.meddle(({ method }) =>
      method === 'PATCH' && ++patches % 3 === 0 ? { status: 409, reason: 'Conflict' } : undefined,
    );
    try {
      for (let restarts = 1; restarts <= 20; restarts++) {
        const job = (await jobs.find(id))!.workload;
        await jobs.note(job, { incarnation: 1, mark: 'starting', restarts });
        await jobs.renew(job, 1000 + restarts);
        expect(statusOf(await api.get<Job>(path)).restarts).toBe(restarts);
      }
    } finally {
      writing = false;
      await Promise.all(others);
    }
    const now = await api.get<Job>(path);
    expect(
      Object.keys(now.metadata.annotations ?? {}).filter((key) => key.startsWith('others/')),
    ).toHaveLength(4);
    expect(KINDS['kubernetes-job'].leftSeconds(now, Date.now())).toBeGreaterThan(990);
    expect(patches).toBeGreaterThan(40);
  });

  it('that has forgotten where a watch was is listed again, and nothing is missed', async () => {
    const path = `/api/v1/namespaces/${namespace}/configmaps`;
    const labels = { mirrored: 'yes' };
    const create = (name: string) =>
      api.create(path, { apiVersion: 'v1', kind: 'ConfigMap', metadata: { name, labels } });
    const told: string[] = [];
    const copy = mirror<KubernetesObject>(client, {
      path,
      what: 'things',
      selector: 'mirrored=yes',
      onChange: ({ metadata }, gone) => told.push(`${gone ? '-' : '+'}${metadata.name}`),
    });
    const names = () => [...copy.objects.values()].map(({ metadata }) => metadata.name).toSorted();
    await Promise.all(['changed', 'kept', 'removed'].map(create));
    try {
      await copy.start();
      await until('it watches', () => relay.watches() === 1);

      // The real API server is asked for a past that it has not kept, and says 410 itself.
      const asked: string[] = [];
      relay.meddle((one) => {
        if (!one.url.includes('watch=true') || asked.length > 0) return undefined;
        asked.push(one.url);
        one.url = one.url.replace(/resourceVersion=\d+/, 'resourceVersion=1');
        return undefined;
      });
      told.length = 0;
      relay.breakWatches();
      await api.remove(`${path}/removed`);
      await api.patch(`${path}/changed`, { data: { a: 'b' } });
      await create('made');
      await until(
        'all of it was told',
        () => names().join() === 'changed,kept,made' && told.includes('+changed'),
        20_000,
      );
      expect(told.toSorted()).toEqual(['+changed', '+made', '-removed']);
      expect(asked).toHaveLength(1);

      // In the middle of a watch it comes as an event.
      await until('it watches again', () => relay.watches() === 1, 20_000);
      relay.meddle((one) =>
        one.url.includes('watch=true') ? { status: 410, reason: 'Expired' } : undefined,
      );
      told.length = 0;
      relay.breakWatches({
        type: 'ERROR',
        object: { kind: 'Status', code: 410, reason: 'Expired', message: 'too old' },
      });
      await api.remove(`${path}/kept`);
      await create('later');
      await until('all of it was told', () => names().join() === 'changed,later,made', 20_000);
      relay.meddle();
      await until('it watches again', () => relay.watches() === 1, 20_000);
      await create('last');
      await until('it was told', () => told.includes('+last'), 20_000);
      expect(told.toSorted()).toEqual(['+last', '+later', '-kept']);
    } finally {
      copy.close();
    }
  });

  describe.each([
    ['ahead', 3 * HOUR_MS],
    ['behind', -3 * HOUR_MS],
  ])('whose clock we are hours %s of', (_, skewMs) => {
    it.for(['kubernetes-job', 'agent-sandbox'] as const)(
      'keeps leases for as long as was meant: %s',
      async (name) => {
        const realNow = Date.now.bind(Date);
        vi.spyOn(Date, 'now').mockImplementation(() => realNow() + skewMs);
        const left = async (id: SandboxId) =>
          KINDS[name].leftSeconds(await api.get(KINDS[name].path(id)), realNow());
        const first = await open(name, { leaseSeconds: 60 });
        const id = await begin(first);
        expect(await left(id)).toBeGreaterThan(30);
        expect(await left(id)).toBeLessThanOrEqual(63);
        await first.close();

        const second = await open(name, { leaseSeconds: 600 });
        second.watch();
        await until('it was renewed', async () => (await left(id)) > 590, 10_000);
        expect(await left(id)).toBeLessThanOrEqual(603);
        // The cluster, by its own clock, keeps it.
        await new Promise((resolve) => setTimeout(resolve, 1000));
        expect(await second.observe(id)).toMatchObject({ phase: 'starting' });
        await second.remove(id);
      },
    );
  });
});
