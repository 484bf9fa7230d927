/** Volumes of the one node, for claims: nothing here makes them when they are asked for. */
import { mkdir } from 'node:fs/promises';
import { NODE_NAME } from './certificates.ts';
import type { Cluster } from './cluster.ts';
import type { Kubectl } from './kubectl.ts';

export const STORAGE_CLASS = 'node';

export async function createVolumes({ directory }: Cluster, api: Kubectl, count: number): Promise<void> {
  await api.create('/apis/storage.k8s.io/v1/storageclasses', {
    apiVersion: 'storage.k8s.io/v1',
    kind: 'StorageClass',
    metadata: { name: STORAGE_CLASS },
    provisioner: 'kubernetes.io/no-provisioner',
    volumeBindingMode: 'WaitForFirstConsumer',
  });
  const here = { matchExpressions: [{ key: 'kubernetes.io/hostname', operator: 'In', values: [NODE_NAME] }] };
  for (let at = 0; at < count; at++) {
    const path = `${directory}/volumes/${at}`;
    await mkdir(path, { recursive: true });
    await api.create('/api/v1/persistentvolumes', {
      apiVersion: 'v1',
      kind: 'PersistentVolume',
      metadata: { name: `volume-${at}` },
      spec: {
        capacity: { storage: '1Gi' },
        accessModes: ['ReadWriteOnce'],
        persistentVolumeReclaimPolicy: 'Retain',
        storageClassName: STORAGE_CLASS,
        local: { path },
        nodeAffinity: { required: { nodeSelectorTerms: [here] } },
      },
    });
  }
}
