/** What happens to sandboxes on a real cluster whose parts fail. */
import { newId, SandboxSpecSchema, type SandboxId } from '@cay/sdk/protocol';
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest';
import type { Backend, Observation } from '../../server/src/backends/backend.ts';
import { kubernetesJobBackend } from '../../server/src/backends/kubernetes/job/kubernetes-job.ts';
import { drain, until } from '../conformance/box.ts';
import { startCluster, whyNoCluster, type Cluster } from './cluster/cluster.ts';
import { kubectl, type Kubectl } from './cluster/kubectl.ts';
import { BASE_IMAGE, GUEST_IMAGE, importSandboxImages } from './cluster/sandbox-images.ts';

const why = await whyNoCluster('full');
if (why !== undefined) console.info(`faults of a cluster: skipped: ${why}`);

const NAMESPACE = 'faults';
const spec = SandboxSpecSchema.parse({ limits: { diskBytes: null, pids: null } });
const exec = { env: {}, workdir: '/', user: 'user' };

describe.skipIf(why !== undefined)('kubernetes-job on a cluster whose parts fail', () => {
  let cluster: Cluster;
  let api: Kubectl;
  let backend: Backend;
  const ids: SandboxId[] = [];

  beforeAll(async () => {
    cluster = await startCluster('full');
    api = await kubectl(cluster);
    await importSandboxImages(cluster);
    await api.createNamespace(NAMESPACE);
    const images = { guestImage: GUEST_IMAGE, baseImage: BASE_IMAGE, pullPolicy: 'Never' as const };
    backend = await kubernetesJobBackend({ kubeconfig: cluster.kubeconfig, namespace: NAMESPACE, ...images });
  });
  afterEach(async () => {
    for (const id of ids.splice(0)) await backend.remove(id);
    expect(await api.names(NAMESPACE)).toEqual([]);
  });
  afterAll(async () => {
    await backend?.close();
    api?.close();
    await cluster?.stop();
  });

  async function make() {
    const id = newId('sbx');
    ids.push(id);
    await backend.ensure(id, spec);
    return { id, guest: await backend.connect(id) };
  }

  it('goes on with a command over a restart of the API server', async () => {
    const { id, guest } = await make();
    const shell = 'i=0; while [ $i -lt 200 ]; do echo $i; i=$((i+1)); sleep 0.03; done; exit 5';
    const ran = drain(await guest.exec({ ...exec, id: 'long', shell }));
    await cluster.hold('kube-apiserver');
    await expect(backend.observe(id)).rejects.toMatchObject({ code: 'unavailable' });
    await cluster.release('kube-apiserver');
    const { stdout, exitCode } = await ran;
    expect(stdout.trim().split('\n')).toEqual(Array.from({ length: 200 }, (_, at) => String(at)));
    expect(exitCode).toBe(5);
    expect(await backend.observe(id)).toMatchObject({ phase: 'ready', incarnation: 1 });
  });

  it('reports a pod that was deleted from outside, and starts the sandbox again when asked', async () => {
    const { id, guest } = await make();
    const running = drain(await guest.exec({ ...exec, id: 'sleep', argv: ['sleep', '600'] }));
    const aborter = new AbortController();
    const seen: Observation[] = [];
    const watching = (async () => {
      for await (const each of backend.watch({ signal: aborter.signal })) if (each.id === id) seen.push(each);
    })();
    const [pod] = await api.pods(NAMESPACE, id);
    await api.remove(`/api/v1/namespaces/${NAMESPACE}/pods/${pod!.metadata.name}`);
    await until(
      'it was told',
      () => seen.some(({ phase, reason }) => phase === 'failed' && reason === 'removed_outside'),
      5_000,
    );
    expect((await running).end.kind).toBe('lost');
    expect(await backend.ensure(id, spec)).toMatchObject({ phase: 'ready', incarnation: 2 });
    const again = await backend.connect(id);
    expect((await drain(await again.exec({ ...exec, id: 'true', argv: ['true'] }))).exitCode).toBe(0);
    aborter.abort();
    await watching;
  });

  it('reaches a sandbox again that was cut off while its kubelet was away', async () => {
    const { id, guest } = await make();
    const run = async (name: string) =>
      (await drain(await guest.exec({ ...exec, id: name, argv: ['true'] }))).exitCode;
    expect(await run('before')).toBe(0);
    await cluster.hold('kubelet');
    try {
      // Its streams end with it; a call meanwhile is rejected within seconds, because the guest cannot be
      // reached.
      await expect(run('meanwhile')).rejects.toMatchObject({ code: 'unavailable' });
      expect((await backend.observe(id)).phase).toBe('ready');
    } finally {
      await cluster.release('kubelet');
    }
    await until(
      'it answers again',
      () =>
        run(`after-${newId('sbx')}`).then(
          (code) => code === 0,
          () => false,
        ),
      30_000,
    );
    expect(await backend.observe(id)).toMatchObject({ phase: 'ready', incarnation: 1 });
  });
});
