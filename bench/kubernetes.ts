/** Sandboxes on a real cluster beside what the cluster does by itself. */
import { newId, SandboxSpecSchema, type SandboxId } from '@cay/sdk/protocol';
import { agentSandboxBackend } from '../server/src/backends/kubernetes/agent-sandbox/agent-sandbox.ts';
import type { Backend } from '../server/src/backends/backend.ts';
import { kubernetesJobBackend } from '../server/src/backends/kubernetes/job/kubernetes-job.ts';
import { startCluster, whyNoCluster, type Cluster } from '../test/kubernetes/cluster/cluster.ts';
import { kubectl, type Kubectl } from '../test/kubernetes/cluster/kubectl.ts';
import { BASE_IMAGE, GUEST_IMAGE, importSandboxImages } from '../test/kubernetes/cluster/sandbox-images.ts';
import { LABELS } from '../server/src/backends/kubernetes/client/names.ts';
import type { Job, List } from '../server/src/backends/kubernetes/client/objects.ts';
import { exec, type Bench } from './bench.ts';
import { clusterBaselines, type ClusterBaselines } from './cluster-baselines.ts';
import { countRequests } from './count-requests.ts';
import { interleaved, series } from './measure.ts';
import type { Report } from './report.ts';

const CREATES = 11;
const AT_ONCE = 50;
const EXECS = 10;
const POOL = 2;
const IDLE_SECONDS = Number(process.env['CAY_BENCH_SECONDS'] ?? 60);
/** Little enough that fifty of them have room on two cores. */
const REQUESTS = { cpus: 0.01, memoryBytes: 16 * 1024 * 1024 };
/** Between one measurement and the next, so that the end of a pod does not slow down the start of another. */
const QUIET_MS = 1500;
/**
 * Added to it at random: a kubelet looks at its containers once a second, and no measurement may fall into
 * step with that.
 */
const JITTER_MS = 1000;

interface TestPlatform {
  report: Report;
  cluster: Cluster;
  api: Kubectl;
  baselines: ClusterBaselines;
}

interface Opened {
  backend: Backend;
  namespace: string;
  create(): Promise<SandboxId>;
}

export async function benchKubernetes({ report }: Pick<Bench, 'report'>): Promise<void> {
  const why = await whyNoCluster('full');
  if (why !== undefined) return console.log(`skipped: ${why}`);
  const whyNoAgentSandbox = await whyNoCluster('full', { agentSandbox: true });
  const cluster = await startCluster('full', { agentSandbox: whyNoAgentSandbox === undefined });
  const [api, baselines] = await Promise.all([kubectl(cluster), clusterBaselines(cluster)]);
  try {
    await importSandboxImages(cluster);
    const platform: TestPlatform = { report, cluster, api, baselines };
    await jobs(platform, 'runc');
    if (cluster.whyNoGvisor === undefined) {
      await api.createRuntimeClass('gvisor');
      await jobs(platform, 'gVisor', 'gvisor');
    } else console.log(`pods of gVisor: skipped: ${cluster.whyNoGvisor}`);
    await warmJobs(platform);
    if (whyNoAgentSandbox === undefined) await claims(platform);
    else console.log(`warm claims: skipped: ${whyNoAgentSandbox}`);
    // At the end, because the cluster is busy for a while after it.
    await burst(platform);
  } finally {
    api.close();
    baselines.close();
    await cluster.stop();
  }
}

async function jobs(platform: TestPlatform, name: string, runtimeClass?: string): Promise<void> {
  const opened = await open(platform, kubernetesJobBackend, { runtimeClass });
  const count = countRequests(`/namespaces/${opened.namespace}/`);
  try {
    await execs(platform, opened, name);
    await creates(platform, opened, name, runtimeClass);
    if (runtimeClass === undefined) await requests(platform, opened, count);
  } finally {
    await opened.backend.close();
  }
}

async function open(
  { cluster, api }: TestPlatform,
  opening: typeof kubernetesJobBackend | typeof agentSandboxBackend,
  { runtimeClass, warmPool }: { runtimeClass?: string; warmPool?: number } = {},
): Promise<Opened> {
  const namespace = `bench-${newId('sbx').slice(4, 12).toLowerCase()}`;
  await api.createNamespace(namespace);
  const images = { guestImage: GUEST_IMAGE, baseImage: BASE_IMAGE, pullPolicy: 'Never' as const };
  const options = {
    kubeconfig: cluster.kubeconfig,
    namespace,
    runtimeClass,
    requests: REQUESTS,
    startsAtOnce: AT_ONCE,
    warmPool,
  };
  const backend = await opening({ ...options, ...images });
  // A limit of processes is only held to on gVisor, one of the disk on neither.
  const spec = SandboxSpecSchema.parse({
    limits: { diskBytes: null, ...(runtimeClass === undefined && { pids: null }) },
  });
  await backend.capabilities();
  const create = async () => {
    const id = newId('sbx');
    await backend.ensure(id, spec);
    await exec(await backend.connect(id), 'true');
    return id;
  };
  return { backend, namespace, create };
}

async function execs(
  { report, api, baselines }: TestPlatform,
  { backend, namespace, create }: Opened,
  name: string,
): Promise<void> {
  const id = await create();
  const [pod] = await api.pods(namespace, id);
  const { exec: fresh, kubectlExec } = baselines;
  const { ours, theirs, program } = await interleaved(
    40,
    {
      ours: async () => exec(await backend.connect(id), 'true'),
      theirs: () => fresh(namespace, pod!.metadata.name),
      program: async () => kubectlExec?.(namespace, pod!.metadata.name),
    },
    { warmUp: 3 },
  );
  await backend.remove(id);
  report.add({
    what: `a fresh exec of true over the API, ${name}`,
    value: theirs.p50,
    p99: theirs.p99,
    unit: 'ms',
  });
  if (kubectlExec)
    report.add({ what: `kubectl exec true, ${name}`, value: program.p50, p99: program.p99, unit: 'ms' });
  else console.log('no comparison with kubectl: there is no such program');
  report.add({ what: `exec true in a pod, ${name}`, value: ours.p50, p99: ours.p99, unit: 'ms' });
  report.add({
    what: '  … of the fresh exec',
    value: ours.p50 / theirs.p50,
    unit: 'x',
    aim: { value: 1 / 5, better: 'less' },
  });
  if (kubectlExec) report.add({ what: '  … of kubectl exec', value: ours.p50 / program.p50, unit: 'x' });
}

async function creates(
  platform: TestPlatform,
  { backend, create }: Opened,
  name: string,
  runtimeClass?: string,
): Promise<void> {
  const { report, baselines } = platform;
  const removals: number[] = [];
  const answered: number[] = [];
  const { ours, bare, barest } = await interleaved(CREATES, {
    bare: async () => {
      const { readyMs, execMs } = await baselines.pod({ runtimeClass });
      answered.push(execMs);
      return quietly(readyMs);
    },
    ours: () => lifetime(backend, create, removals),
    barest: async () => quietly((await baselines.pod({ runtimeClass, barest: true })).readyMs),
  });
  const removal = series(removals);
  report.add({ what: `a bare pod until it is ready, ${name}`, value: bare.p50, p99: bare.p99, unit: 'ms' });
  report.add({
    what: `a bare pod without any volume, ${name}`,
    value: barest.p50,
    p99: barest.p99,
    unit: 'ms',
  });
  report.add({
    what: `create + first exec, kubernetes-job, ${name}`,
    value: ours.p50,
    p99: ours.p99,
    unit: 'ms',
  });
  report.add({
    what: '  … of the bare pod',
    value: ours.p50 / bare.p50,
    unit: 'x',
    aim: { value: 1.3, better: 'less' },
  });
  report.add({
    what: '  … of the bare pod + a first exec',
    value: ours.p50 / series(answered).p50,
    unit: 'x',
  });
  report.add({ what: `remove, kubernetes-job, ${name}`, value: removal.p50, p99: removal.p99, unit: 'ms' });
}

/** A Job of the warm pool beside a bare pod, in turns. */
async function warmJobs(platform: TestPlatform): Promise<void> {
  const { report, baselines, api } = platform;
  const { backend, namespace, create } = await open(platform, kubernetesJobBackend, { warmPool: POOL });
  const removals: number[] = [];
  const isFilled = async () => {
    const { items } = await api.get<List<Job>>(`/apis/batch/v1/namespaces/${namespace}/jobs`, {
      labelSelector: `${LABELS.pool},!${LABELS.sandbox}`,
    });
    return items.filter(({ status }) => (status?.ready ?? 0) > 0).length >= POOL;
  };
  try {
    const { ours, bare } = await interleaved(CREATES, {
      bare: async () => quietly((await baselines.pod({})).readyMs),
      async ours() {
        while (!(await isFilled())) await new Promise((resolve) => setTimeout(resolve, 100));
        await quietly(0);
        return lifetime(backend, create, removals);
      },
    });
    report.add({
      what: 'create + first exec, kubernetes-job, warm',
      value: ours.p50,
      p99: ours.p99,
      unit: 'ms',
    });
    report.add({
      what: '  … of a bare pod until it is ready',
      value: ours.p50 / bare.p50,
      unit: 'x',
      aim: { value: 1.2, better: 'less' },
    });
  } finally {
    await backend.close();
  }
}

async function claims(platform: TestPlatform): Promise<void> {
  const { report, baselines } = platform;
  const opened = await open(platform, agentSandboxBackend, { warmPool: POOL });
  const { backend, namespace, create } = opened;
  const removals: number[] = [];
  const answered: number[] = [];
  try {
    const { ours, theirs } = await interleaved(CREATES, {
      async theirs() {
        await baselines.poolFilled(namespace, POOL);
        const { readyMs, execMs } = await baselines.claim(namespace);
        answered.push(execMs);
        return quietly(readyMs);
      },
      async ours() {
        await baselines.poolFilled(namespace, POOL);
        return lifetime(backend, create, removals);
      },
    });
    report.add({
      what: 'a claim from the warm pool until it is ready',
      value: theirs.p50,
      p99: theirs.p99,
      unit: 'ms',
    });
    report.add({
      what: 'create + first exec, agent-sandbox, warm',
      value: ours.p50,
      p99: ours.p99,
      unit: 'ms',
    });
    report.add({
      what: '  … of the claim',
      value: ours.p50 / theirs.p50,
      unit: 'x',
      aim: { value: 1.3, better: 'less' },
    });
    report.add({
      what: '  … of the claim + a first exec',
      value: ours.p50 / series(answered).p50,
      unit: 'x',
    });
    report.add({
      what: 'remove, agent-sandbox, warm',
      value: series(removals).p50,
      p99: series(removals).p99,
      unit: 'ms',
    });
  } finally {
    await backend.close();
  }
}

/**
 * How long a sandbox took from nothing to the end of its first command. It is removed then, which is counted
 * apart.
 */
async function lifetime(
  backend: Backend,
  create: () => Promise<SandboxId>,
  removals: number[],
): Promise<number> {
  const start = performance.now();
  const id = await create();
  const ready = performance.now();
  await backend.remove(id);
  removals.push(performance.now() - ready);
  return quietly(ready - start);
}

async function quietly(tookMs: number): Promise<number> {
  await new Promise((resolve) => setTimeout(resolve, QUIET_MS + Math.random() * JITTER_MS));
  return tookMs;
}

async function requests(
  { report }: TestPlatform,
  { backend, create }: Opened,
  count: () => number,
): Promise<void> {
  const start = count();
  const id = await create();
  const created = count();
  for (let index = 0; index < EXECS; index++) await exec(await backend.connect(id), 'true');
  const ran = count();
  await new Promise((resolve) => setTimeout(resolve, IDLE_SECONDS * 1000));
  const idled = count();
  await backend.remove(id);
  const end = count();
  const unit = 'requests' as const;
  report.add({ what: 'API requests of a create + first exec', value: created - start, unit });
  report.add({
    what: '  … of each further exec',
    value: (ran - created) / EXECS,
    unit,
    aim: { value: 0, better: 'less' },
  });
  report.add({
    what: '  … of a minute in which nothing happens',
    value: ((idled - ran) * 60) / IDLE_SECONDS,
    unit,
  });
  report.add({ what: '  … of a removal', value: end - idled, unit });
  report.add({ what: `  … of a lifetime with ${EXECS} execs`, value: ran - start + (end - idled), unit });
}

async function burst(platform: TestPlatform): Promise<void> {
  const { report } = platform;
  const { backend, create } = await open(platform, kubernetesJobBackend);
  try {
    const start = performance.now();
    const made = await Promise.allSettled(Array.from({ length: AT_ONCE }, create));
    const answeredMs = performance.now() - start;
    const removed = await Promise.allSettled((await backend.list()).map(({ id }) => backend.remove(id)));
    const errors = [...made, ...removed].flatMap((each) =>
      each.status === 'rejected' ? [String(each.reason)] : [],
    );
    for (const error of new Set(errors)) console.log(error);
    report.add({
      what: `${AT_ONCE} sandboxes at once, kubernetes-job, runc, all answered`,
      value: answeredMs,
      unit: 'ms',
    });
    report.add({ what: '  … and removed', value: performance.now() - start - answeredMs, unit: 'ms' });
    report.add({
      what: '  … errors',
      value: errors.length,
      unit: 'errors',
      aim: { value: 0, better: 'less' },
    });
  } finally {
    await backend.close();
  }
}
