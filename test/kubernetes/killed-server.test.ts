/**
 * A server that is killed at every step of what it does on a real cluster: the next one finishes or undoes
 * it, and nothing is left.
 */
import { newId, SandboxSpecSchema } from '@cay/sdk/protocol';
import { spawn } from 'node:child_process';
import { fileURLToPath } from 'node:url';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { agentSandboxBackend } from '../../server/src/backends/kubernetes/agent-sandbox/agent-sandbox.ts';
import type {
  AgentSandboxOptions,
  PoolAndStorage,
} from '../../server/src/backends/kubernetes/agent-sandbox/settings.ts';
import { isAway, type Backend, type Phase } from '../../server/src/backends/backend.ts';
import { kubernetesJobBackend } from '../../server/src/backends/kubernetes/job/kubernetes-job.ts';
import { LABELS } from '../../server/src/backends/kubernetes/client/names.ts';
import type { Job, KubernetesObject, List } from '../../server/src/backends/kubernetes/client/objects.ts';
import { Semaphore } from '../../server/src/lib/semaphore.ts';
import { drain, until } from '../conformance/box.ts';
import { ROLLBACK_FAULTS } from '../../server/src/backends/kubernetes/snapshots/rollback-pod.ts';
import { SNAPSHOT_FAULTS } from '../../server/src/backends/kubernetes/snapshots/take-snapshot.ts';
import { CLUSTER_POINTS } from '../faults/model/fault-points.ts';
import { startCluster, whyNoCluster, type Cluster } from './cluster/cluster.ts';
import { kubectl, type Kubectl } from './cluster/kubectl.ts';
import { BASE_IMAGE, GUEST_IMAGE, importSandboxImages } from './cluster/sandbox-images.ts';
import { createVolumes, STORAGE_CLASS } from './cluster/volumes.ts';
import type { Operation } from './creating.ts';

const why = await whyNoCluster('full', { agentSandbox: true });
if (why !== undefined) console.info(`servers that are killed on a cluster: skipped: ${why}`);

const CHILD = fileURLToPath(new URL('creating.ts', import.meta.url));
const EXTENSIONS = '/apis/extensions.agents.x-k8s.io/v1beta1';
const spec = SandboxSpecSchema.parse({ limits: { diskBytes: null, pids: null }, cmd: ['sleep', '600'] });
const AT_ONCE = 6;

interface Case {
  /** How the sandbox was before. */
  from: 'absent' | 'ready' | 'stopped' | 'lost';
  verb: NonNullable<Operation['verb']>;
  point: string;
  /** What may be found afterwards. */
  finds: Phase[];
  /** `stop` is then followed by `ensure`. */
  next: 'ensure' | 'stop' | 'remove';
}

const STARTING = ['begun', 'running', 'answered', 'prepared'].map((step) => `kubernetes.start.${step}`);
const STARTED = 'kubernetes.start.recorded';
/** What a claim was given is taken over with the note that it is ready. */
const RECORDED = [STARTED, 'agent-sandbox.claim.taken'];

function starting(from: Case['from'], next: Case['next'], points = [...STARTING, STARTED]): Case[] {
  return points.map((point) => ({
    from,
    verb: 'ensure',
    point,
    finds: [RECORDED.includes(point) ? 'ready' : 'starting'],
    next,
  }));
}

const CASES: Case[] = [
  ...starting('absent', 'ensure'),
  ...starting('absent', 'remove', ['kubernetes.start.begun', STARTED]),
  ...starting('stopped', 'ensure', ['kubernetes.start.begun', 'kubernetes.start.answered', STARTED]),
  {
    from: 'lost',
    verb: 'ensure',
    point: 'kubernetes.start.cleared',
    finds: ['absent', 'failed'],
    next: 'ensure',
  },
  { from: 'ready', verb: 'stop', point: 'kubernetes.stop.ended', finds: ['ready'], next: 'stop' },
  { from: 'ready', verb: 'stop', point: 'kubernetes.stop.recorded', finds: ['stopped'], next: 'ensure' },
  {
    from: 'ready',
    verb: 'remove',
    point: 'kubernetes.remove.asked',
    finds: ['absent', 'failed'],
    next: 'ensure',
  },
  {
    from: 'ready',
    verb: 'remove',
    point: 'kubernetes.remove.asked',
    finds: ['absent', 'failed'],
    next: 'remove',
  },
];

const WITH_VOLUMES: Case[] = [
  ...starting('absent', 'ensure', ['kubernetes.start.running']),
  ...starting('stopped', 'ensure', ['kubernetes.start.begun', STARTED]),
  { from: 'ready', verb: 'stop', point: 'kubernetes.stop.ended', finds: ['ready', 'failed'], next: 'stop' },
  { from: 'ready', verb: 'stop', point: 'kubernetes.suspend.recorded', finds: ['stopped'], next: 'ensure' },
  {
    from: 'ready',
    verb: 'remove',
    point: 'kubernetes.remove.asked',
    finds: ['absent', 'failed'],
    next: 'remove',
  },
];

const FROM_THE_POOL: Case[] = [
  ...starting('absent', 'ensure', [
    'kubernetes.start.begun',
    'agent-sandbox.claim.given',
    'agent-sandbox.claim.taken',
    STARTED,
  ]),
  ...starting('absent', 'remove', [
    'kubernetes.start.begun',
    'agent-sandbox.claim.given',
    'agent-sandbox.claim.taken',
    STARTED,
  ]),
  {
    from: 'ready',
    verb: 'remove',
    point: 'kubernetes.remove.asked',
    finds: ['absent', 'failed'],
    next: 'remove',
  },
];

const FROM_THE_POOL_OF_JOBS: Case[] = [
  ...starting('absent', 'ensure', ['kubernetes.pool.claimed', STARTED]),
  ...starting('absent', 'remove', ['kubernetes.pool.claimed']),
  {
    from: 'ready',
    verb: 'remove',
    point: 'kubernetes.remove.asked',
    finds: ['absent', 'failed'],
    next: 'ensure',
  },
];

interface Kind {
  title: string;
  backend: NonNullable<Operation['backend']>;
  more: PoolAndStorage;
  cases: Case[];
}

const KINDS: Kind[] = [
  { title: 'kubernetes-job', backend: 'kubernetes-job', more: {}, cases: CASES },
  { title: 'agent-sandbox', backend: 'agent-sandbox', more: {}, cases: CASES },
  {
    title: 'agent-sandbox with volumes',
    backend: 'agent-sandbox',
    more: { storage: { size: '1Gi', storageClass: STORAGE_CLASS } },
    cases: WITH_VOLUMES,
  },
  {
    title: 'agent-sandbox with a warm pool',
    backend: 'agent-sandbox',
    more: { warmPool: 2 },
    cases: FROM_THE_POOL,
  },
  {
    title: 'kubernetes-job with a warm pool',
    backend: 'kubernetes-job',
    // Enough that every case finds one.
    more: { warmPool: 6 },
    cases: FROM_THE_POOL_OF_JOBS,
  },
];

/** Those of snapshots and volumes strike in `shared/travel.test.ts` and `shared/volumes.test.ts`. */
const ELSEWHERE: readonly string[] = [
  ...SNAPSHOT_FAULTS,
  ...ROLLBACK_FAULTS,
  'kubernetes.volume.made',
  'kubernetes.volume.removing',
];

it('a server is killed at every gap that the code names', () => {
  const tried = [...ELSEWHERE, ...KINDS.flatMap(({ cases }) => cases.map(({ point }) => point))];
  expect(CLUSTER_POINTS.filter((point) => !tried.includes(point))).toEqual([]);
});

describe.skipIf(why !== undefined)('a server that is killed on a cluster', () => {
  let cluster: Cluster;
  let api: Kubectl;

  beforeAll(async () => {
    cluster = await startCluster('full', { agentSandbox: true });
    api = await kubectl(cluster);
    await importSandboxImages(cluster);
    await createVolumes(cluster, api, 12);
  });
  afterAll(async () => {
    api?.close();
    await cluster?.stop();
  });

  it.for(KINDS)('leaves what the next one finishes or undoes: $title', { timeout: 240_000 }, async (kind) => {
    const namespace = await api.newNamespace('killed');
    const images = { guestImage: GUEST_IMAGE, baseImage: BASE_IMAGE, pullPolicy: 'Never' as const };
    const settings: AgentSandboxOptions = {
      kubeconfig: cluster.kubeconfig,
      namespace,
      ...images,
      ...kind.more,
    };
    const open = () =>
      (kind.backend === 'kubernetes-job' ? kubernetesJobBackend : agentSandboxBackend)(settings);
    const atOnce = new Semaphore(AT_ONCE);
    const [earlier, later] = [await open(), await open()];
    try {
      await Promise.all([earlier.capabilities(), later.capabilities()]);
      if (kind.backend === 'kubernetes-job' && kind.more.warmPool !== undefined)
        await until('the pool is full', () => poolIsFull(namespace, kind.more.warmPool!), 60_000);
      const problems = await Promise.all(
        kind.cases.map((one) =>
          atOnce.run(async () => {
            try {
              await play(one, kind, { earlier, later, settings });
              return [];
            } catch (error) {
              return [
                `${one.verb} from ${one.from} at ${one.point}, then ${one.next}: ${(error as Error).message}`,
              ];
            }
          }),
        ),
      );
      expect(problems.flat()).toEqual([]);
      expect(await later.list()).toEqual([]);
      if (kind.more.warmPool === undefined) expect(await api.names(namespace)).toEqual([]);
      else
        expect(
          (await api.get<List<KubernetesObject>>(`${EXTENSIONS}/namespaces/${namespace}/sandboxclaims`))
            .items,
        ).toEqual([]);
    } finally {
      await Promise.all([earlier.close(), later.close()]);
      await api.remove(`/api/v1/namespaces/${namespace}`);
    }
  });

  async function poolIsFull(namespace: string, size: number): Promise<boolean> {
    const { items } = await api.get<List<Job>>(`/apis/batch/v1/namespaces/${namespace}/jobs`, {
      labelSelector: `${LABELS.pool},!${LABELS.sandbox}`,
    });
    return items.filter(({ status }) => (status?.ready ?? 0) > 0).length >= size;
  }

  async function play(
    { from, verb, point, finds, next }: Case,
    kind: Kind,
    {
      earlier,
      later,
      settings,
    }: { earlier: Backend; later: Backend; settings: AgentSandboxOptions & { namespace?: string } },
  ): Promise<void> {
    const id = newId('sbx');
    const namespace = settings.namespace!;
    if (from !== 'absent') await earlier.ensure(id, spec);
    if (from === 'stopped') await earlier.stop(id, { graceMs: 100 });
    if (from === 'lost') {
      const [pod] = await api.pods(namespace, id);
      await api.remove(`/api/v1/namespaces/${namespace}/pods/${pod!.metadata.name}`);
      await until('its loss is seen', async () => (await earlier.observe(id)).phase === 'failed', 20_000);
    }
    const before = (await earlier.observe(id)).incarnation;
    await killedAt(point, { backend: kind.backend, settings, id, spec, verb });
    const found = await later.observe(id);
    expect(finds).toContain(found.phase);
    if (next === 'stop') expect(await later.stop(id, { graceMs: 100 })).toMatchObject({ phase: 'stopped' });
    if (next !== 'remove') {
      const again = await patiently(() => later.ensure(id, spec));
      expect(again).toMatchObject({ id, phase: 'ready' });
      if (found.phase !== 'absent') expect(again.incarnation).toBeGreaterThanOrEqual(before);
      const after = { id: 'after', shell: 'exit 7', env: {}, workdir: '/', user: 'user' };
      const ran = await patiently(async () => drain(await (await later.connect(id)).exec(after)));
      expect(ran.exitCode).toBe(7);
    }
    await later.remove(id);
    expect(await later.observe(id)).toMatchObject({ phase: 'absent' });
    expect(await api.pods(namespace, id)).toEqual([]);
  }
});

/**
 * A stream that the killed server was about to open may take the guest for a moment from the one that comes
 * after it.
 */
async function patiently<T>(ask: () => Promise<T>): Promise<T> {
  for (let left = 10; ; left--) {
    try {
      return await ask();
    } catch (error) {
      if (left === 0 || !isAway(error)) throw error;
      await new Promise((resolve) => setTimeout(resolve, 300));
    }
  }
}

/** Resolves when the server has ended itself there, and not in any other way. */
async function killedAt(point: string, operation: Operation): Promise<void> {
  const env = { ...process.env, CAY_FAULT_POINTS: JSON.stringify({ [point]: 'kill' }) };
  const child = spawn(process.execPath, [CHILD, JSON.stringify(operation)], {
    stdio: ['ignore', 'inherit', 'inherit'],
    env,
  });
  const timer = setTimeout(() => child.kill('SIGTERM'), 60_000);
  const signal = await new Promise((resolve) => child.once('exit', (_code, by) => resolve(by)));
  clearTimeout(timer);
  expect(signal).toBe('SIGKILL');
}
