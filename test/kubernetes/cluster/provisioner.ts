/**
 * A provisioner of the tests: every claim of its class gets a filesystem in memory of just its size, on the
 * one node. It stands for storage that refuses what is beyond the size, and is nothing that a cluster has.
 */
import { execFile } from 'node:child_process';
import { setTimeout as sleep } from 'node:timers/promises';
import { promisify } from 'node:util';
import { quantityBytes, type VolumeClaim } from '../../../server/src/backends/kubernetes/volumes/claim.ts';
import type { KubernetesObject, List } from '../../../server/src/backends/kubernetes/client/objects.ts';
import type { VolumeSettings } from '../../../server/src/backends/kubernetes/volumes/volume-settings.ts';
import { NODE_NAME } from './certificates.ts';
import type { Cluster } from './cluster.ts';
import type { Kubectl } from './kubectl.ts';

const run = promisify(execFile);
const PROVISIONED_CLASS = 'provisioned';
const PROVISIONER = 'cay.test/memory';
const VOLUMES = '/api/v1/persistentvolumes';
const EVERY_MS = 150;

/** Settings of a server on that cluster. */
export const PROVISIONED = {
  storageClass: PROVISIONED_CLASS,
  sizeBytes: 128 * 1024 * 1024,
  enforced: true,
} satisfies VolumeSettings;

interface Claim extends VolumeClaim {
  spec?: VolumeClaim['spec'] & { storageClassName?: string; accessModes?: string[]; volumeName?: string };
}
interface Volume extends KubernetesObject {
  spec?: { storageClassName?: string; local?: { path: string } };
  status?: { phase?: string };
}

export interface Provisioner {
  stop(): Promise<void>;
}

export async function startProvisioner(
  { directory, enter }: Pick<Cluster, 'directory' | 'enter'>,
  api: Kubectl,
): Promise<Provisioner> {
  await api.create('/apis/storage.k8s.io/v1/storageclasses', {
    apiVersion: 'storage.k8s.io/v1',
    kind: 'StorageClass',
    metadata: { name: PROVISIONED_CLASS },
    provisioner: PROVISIONER,
    volumeBindingMode: 'Immediate',
  });
  const onNode = (...argv: string[]) => run(enter[0]!, [...enter.slice(1), '-m', ...argv]);
  const made = new Set<string>();
  let stopped = false;

  async function provide({ metadata: { name, namespace, uid }, spec }: Claim): Promise<void> {
    if (made.has(uid)) return;
    made.add(uid);
    const path = `${directory}/provided/${uid}`;
    const storage = spec?.resources?.requests?.storage;
    await onNode('mkdir', '-p', path);
    await onNode('mount', '-t', 'tmpfs', '-o', `size=${quantityBytes(storage)},mode=755`, 'provided', path);
    const here = { key: 'kubernetes.io/hostname', operator: 'In', values: [NODE_NAME] };
    await api.create(VOLUMES, {
      apiVersion: 'v1',
      kind: 'PersistentVolume',
      metadata: { name: `provided-${uid}` },
      spec: {
        capacity: { storage },
        accessModes: spec?.accessModes,
        persistentVolumeReclaimPolicy: 'Retain',
        storageClassName: PROVISIONED_CLASS,
        claimRef: { apiVersion: 'v1', kind: 'PersistentVolumeClaim', namespace, name, uid },
        local: { path },
        nodeAffinity: { required: { nodeSelectorTerms: [{ matchExpressions: [here] }] } },
      },
    });
  }

  async function takeBack({ metadata: { name }, spec }: Volume): Promise<void> {
    await api.remove(`${VOLUMES}/${name}`);
    if (spec?.local) await onNode('umount', '--lazy', spec.local.path).catch(() => {});
  }

  async function look(): Promise<void> {
    const { items: claims } = await api.get<List<Claim>>('/api/v1/persistentvolumeclaims');
    for (const claim of claims)
      if (claim.spec?.storageClassName === PROVISIONED_CLASS && claim.spec.volumeName === undefined)
        await provide(claim);
    const { items: volumes } = await api.get<List<Volume>>(VOLUMES);
    for (const volume of volumes)
      if (volume.spec?.storageClassName === PROVISIONED_CLASS && volume.status?.phase === 'Released')
        await takeBack(volume);
  }

  const ended = (async () => {
    while (!stopped) {
      await look().catch((error: unknown) => {
        if (!stopped) console.error('the provisioner of the tests:', error);
      });
      await sleep(EVERY_MS);
    }
  })();
  return {
    async stop() {
      stopped = true;
      await ended;
    },
  };
}
