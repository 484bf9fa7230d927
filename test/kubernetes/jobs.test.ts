/**
 * A server on a real cluster that runs jobs: what an orchestrator asks of it, and finds of it in the cluster.
 */
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { Sandbox } from '@cay/sdk';
import type { SandboxId } from '@cay/sdk/protocol';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { kubernetesJobBackend } from '../../server/src/backends/kubernetes/job/kubernetes-job.ts';
import { serverLog } from '../../server/src/cli/lib/server-log.ts';
import { serve, type RunningServer } from '../../server/src/serve.ts';
import { until } from '../conformance/box.ts';
import { startCluster, whyNoCluster, type Cluster } from './cluster/cluster.ts';
import { kubectl, type Kubectl } from './cluster/kubectl.ts';
import { BASE_IMAGE, GUEST_IMAGE, importSandboxImages } from './cluster/sandbox-images.ts';

const why = await whyNoCluster('full');
if (why !== undefined) console.info(`jobs on a cluster: skipped: ${why}`);

const NAMESPACE = 'jobs';

describe.skipIf(why !== undefined)('a server that runs jobs on a cluster', () => {
  let cluster: Cluster;
  let api: Kubectl;
  let dataDir: string;
  let server: RunningServer;
  beforeAll(async () => {
    cluster = await startCluster('full');
    api = await kubectl(cluster);
    await importSandboxImages(cluster);
    await api.createNamespace(NAMESPACE);
    dataDir = await mkdtemp(join(tmpdir(), 'cay-jobs-'));
    const images = { guestImage: GUEST_IMAGE, baseImage: BASE_IMAGE, pullPolicy: 'Never' as const };
    const backend = await kubernetesJobBackend({
      kubeconfig: cluster.kubeconfig,
      namespace: NAMESPACE,
      ...images,
    });
    server = await serve({ backend, dataDir, port: 0, log: serverLog('silent') });
  });
  afterAll(async () => {
    await server?.close();
    api?.close();
    await cluster?.stop();
    await rm(dataDir, { recursive: true, force: true });
  });

  const claim = (script: string) =>
    Sandbox.create({ cmd: ['sh', '-c', script] }, { url: server.url, apiKey: server.adminKey! });

  it('claims one, tells how it stands, waits for it over a restart of the API server, and releases it', async () => {
    const sandbox = await claim('echo begun; until [ -e go ]; do sleep 0.05; done; echo over >&2; exit 3');
    const { uid } = sandbox.info;
    const [pod] = await api.pods(NAMESPACE, sandbox.id as SandboxId);
    expect(pod!.metadata.ownerReferences).toMatchObject([{ kind: 'Job', uid }]);
    expect(await sandbox.status()).toMatchObject({ uid, phase: 'active', complete: false, active: 1 });
    const waiting = sandbox.wait({ timeoutMs: 120_000 });
    expect(await sandbox.wait({ timeoutMs: 50 })).toMatchObject({ outcome: 'timed_out' });
    await cluster.hold('kube-apiserver');
    await cluster.release('kube-apiserver');
    const go = () =>
      sandbox.exec('touch go').then(
        () => true,
        () => false,
      );
    await until('the API server answers again', go, 60_000);
    expect(await waiting).toMatchObject({
      outcome: 'completed',
      end: { kind: 'exited', exitCode: 3 },
      status: { complete: true, uid },
    });
    await sandbox.stop();
    const events = await Array.fromAsync(sandbox.logs({ since: new Date(sandbox.info.createdAtMs) }));
    expect(events.flatMap((event) => ('data' in event ? [[event.type, event.data]] : []))).toEqual([
      ['stdout', 'begun\n'],
      ['stderr', 'over\n'],
    ]);
    await sandbox.kill();
    expect(await api.names(NAMESPACE)).toEqual([]);
  });

  it('says that a command is lost when its pod is deleted from outside', async () => {
    await using sandbox = await claim('sleep 1000');
    const waiting = sandbox.wait({ timeoutMs: 120_000 });
    const [pod] = await api.pods(NAMESPACE, sandbox.id as SandboxId);
    await api.remove(`/api/v1/namespaces/${NAMESPACE}/pods/${pod!.metadata.name}`);
    expect(await waiting).toMatchObject({
      outcome: 'lost',
      end: { kind: 'lost' },
      status: { phase: 'failed', complete: true, failed: 1, reason: 'removed_outside' },
    });
  });
});
