import type { Ability, Capabilities } from '@cay/sdk/protocol';
import { abilitiesOf, type Runtime } from '../runtimes.ts';
import type { VolumeSettings } from '../volumes/volume-settings.ts';

const HOW_KEPT =
  'files, of the directories that a pod can write: its guest packs them while its processes are still, and the server keeps them in its data directory. A snapshot, a clone and a rollback take as long as copying the files does, and a clone and a rollback make another pod. Owners, and what the image has, are not kept';
const HOW_FROZEN =
  'the guest stops all processes with SIGSTOP: they keep their memory, and Kubernetes goes on counting the pod as one that runs';

const HOW_VOLUMES = {
  ReadWriteOnce:
    'a PersistentVolumeClaim each, of access mode ReadWriteOnce: sandboxes that have one at once run on one node, and one that has no room there is not started. How much is used is not known',
  ReadWriteMany:
    'a PersistentVolumeClaim each, of access mode ReadWriteMany, which the storage class has to have. How much is used is not known',
};
const NO_CLAIMS =
  'the account may not make PersistentVolumeClaims: "cay kubernetes render" prints the rights that it needs';
const NO_SIZES =
  'whether the storage enforces the size of a claim only its operator knows: CAY_KUBERNETES_VOLUME_SIZE_ENFORCED says so';

export interface PodAbilities {
  /** Whether the guest freezes processes. Kubernetes cannot. */
  freezes?: boolean;
  /** The files of a sandbox outlive its pod. */
  suspends?: boolean;
  /** The server has a directory for snapshots. */
  snapshots?: boolean;
  /** What named volumes are. Absent: the account may make none. */
  volumes?: VolumeSettings | undefined;
  /** Notes in place of the default ones. */
  notes?: Partial<Record<Ability, string>>;
}

/** What a sandbox of a backend can do in a pod. */
export function podAbilitiesOf(
  runtime: Runtime,
  { freezes = false, suspends = false, snapshots = false, volumes, notes: own }: PodAbilities,
): Pick<Capabilities, 'abilities' | 'notes'> {
  const { abilities, notes } = abilitiesOf(runtime, own);
  const { snapshotXattrs: _, ...rest } = notes;
  const known = snapshots && abilities.xattrs ? rest : notes;
  const enforced = volumes?.enforced === true;
  return {
    abilities: {
      ...abilities,
      freeze: freezes,
      suspend: suspends,
      snapshots,
      snapshotXattrs: snapshots && abilities.xattrs,
      volumes: volumes !== undefined,
      volumeSize: enforced,
    },
    notes: {
      ...known,
      volumes: volumes ? HOW_VOLUMES[volumes.access ?? 'ReadWriteOnce'] : NO_CLAIMS,
      ...(!enforced && { volumeSize: volumes ? NO_SIZES : NO_CLAIMS }),
      ...(freezes && { freeze: HOW_FROZEN }),
      ...(snapshots && { snapshots: HOW_KEPT }),
      ...(snapshots && !abilities.xattrs && { snapshotXattrs: 'there are no extended attributes' }),
    },
  };
}
