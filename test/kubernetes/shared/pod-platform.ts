/** The platform of the conformance suite in pods of a real cluster, whichever backend makes them. */
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { newId, SandboxSpecSchema, type SandboxId } from '@cay/sdk/protocol';
import { expect } from 'vitest';
import type { Backend } from '../../../server/src/backends/backend.ts';
import type { PodBackendOptions } from '../../../server/src/backends/kubernetes/pod-backend.ts';
import type { TestPlatform } from '../../conformance/backend-suite.ts';
import { until } from '../../conformance/box.ts';
import type { Kubectl } from '../cluster/kubectl.ts';
import { PROVISIONED } from '../cluster/provisioner.ts';
import { BASE_IMAGE, GUEST_IMAGE } from '../cluster/sandbox-images.ts';
import type { SharedCluster } from './shared-cluster.ts';

const EVICTED =
  'a pod that writes too much is evicted, which test/kubernetes/attacks.test.ts tries; no write is refused';

/** What no pod can be asked for, with the reason. */
export const SKIPPED = {
  'a write beyond the disk is resource_exhausted and leaves nothing': EVICTED,
  'a command that fills the disk fails, and what it frees can be used again': EVICTED,
  'a subvolume of its own does not get around the disk limit': EVICTED,
  'a clone may write no more than its own disk holds': EVICTED,
  'a clone can have a read-only root':
    'what cannot be written in a pod is in its image, and the files of a snapshot are not',
  'there is no network interface but lo': 'a pod has a card of the cluster; a NetworkPolicy closes it',
};
export const SKIPPED_ON_GVISOR = {
  ...SKIPPED,
  'PID 1 cannot be killed from inside':
    'everybody in a pod is one user, and gVisor does not shield PID 1 as Linux does',
};

export type Opening = (settings: PodBackendOptions) => Promise<Backend>;

export interface PodPlatform extends TestPlatform {
  namespace: string;
}

export async function podPlatform(
  cluster: SharedCluster,
  api: Kubectl,
  opening: Opening,
  runtimeClass?: string,
): Promise<PodPlatform> {
  const namespace = await api.newNamespace('suite');
  const images = { guestImage: GUEST_IMAGE, baseImage: BASE_IMAGE, pullPolicy: 'Never' as const };
  const dir = await mkdtemp(join(tmpdir(), 'cay-kept-'));
  const open = () =>
    opening({
      kubeconfig: cluster.kubeconfig,
      namespace,
      runtimeClass,
      keep: { dir },
      volumes: PROVISIONED,
      ...images,
    });
  const made: PodPlatform = {
    namespace,
    backend: await open(),
    spec: { limits: { diskBytes: null, ...(runtimeClass === undefined && { pids: null }) } },
    restart: open,
    crash: (id) => crash(cluster, api, namespace, id),
    hostPaths: [cluster.directory],
    leftovers: () => api.names(namespace),
    async cleanup() {
      await made.backend.close();
      await api.remove(`/api/v1/namespaces/${namespace}`);
      await rm(dir, { recursive: true, force: true });
    },
  };
  return made;
}

/** Ends the first process of the sandbox's container from the node. */
async function crash(cluster: SharedCluster, api: Kubectl, namespace: string, id: SandboxId): Promise<void> {
  let container: string | undefined;
  // A guest answers before its node has told of its container.
  await until(
    'the node tells of the container',
    async () => ([container] = await api.containers(namespace, id)).length > 0,
  );
  await cluster.ctr('tasks', 'kill', '-s', 'SIGKILL', container!);
}

/**
 * gVisor's own count is not to be relied on while a limit holds it back, and is all that the backend can see.
 */
export async function holdsToItsCores(
  cluster: SharedCluster,
  api: Kubectl,
  made: PodPlatform,
): Promise<void> {
  const { backend, spec, namespace, cleanup } = made;
  try {
    const id = newId('sbx');
    await backend.ensure(id, SandboxSpecSchema.parse({ ...spec, limits: { ...spec?.limits, cpus: 0.5 } }));
    const guest = await backend.connect(id);
    const busy = { shell: 'while :; do :; done', env: {}, workdir: '/', user: 'user' };
    for (const command of ['one', 'other']) await guest.exec({ ...busy, id: command });
    const { uid } = (await api.pods(namespace, id))[0]!.metadata;
    const [before, at] = [cluster.cpuUsageMs(uid), performance.now()];
    await new Promise((resolve) => setTimeout(resolve, 2000));
    expect((cluster.cpuUsageMs(uid) - before) / (performance.now() - at)).toBeLessThan(0.8);
    await backend.remove(id);
  } finally {
    await cleanup?.();
  }
}
