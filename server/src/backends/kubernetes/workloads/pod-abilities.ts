import type { Ability, Capabilities } from '@cay/sdk/protocol';
import { abilitiesOf, type Runtime } from '../runtimes.ts';

const HOW_KEPT =
  'files, of the directories that a pod can write: its guest packs them while its processes are still, and the server keeps them in its data directory. A snapshot, a clone and a rollback take as long as copying the files does, and a clone and a rollback make another pod. Owners, and what the image has, are not kept';
const HOW_FROZEN =
  'the guest stops all processes with SIGSTOP: they keep their memory, and Kubernetes goes on counting the pod as one that runs';

export interface PodAbilities {
  /** Whether the guest freezes processes. Kubernetes cannot. */
  freezes?: boolean;
  /** The files of a sandbox outlive its pod. */
  suspends?: boolean;
  /** The server has a directory for snapshots. */
  snapshots?: boolean;
  /** Notes in place of the default ones. */
  notes?: Partial<Record<Ability, string>>;
}

/** What a sandbox of a backend can do in a pod. */
export function podAbilitiesOf(
  runtime: Runtime,
  { freezes = false, suspends = false, snapshots = false, notes: own }: PodAbilities,
): Pick<Capabilities, 'abilities' | 'notes'> {
  const { abilities, notes } = abilitiesOf(runtime, own);
  const { snapshotXattrs: _, ...rest } = notes;
  const known = snapshots && abilities.xattrs ? rest : notes;
  return {
    abilities: {
      ...abilities,
      freeze: freezes,
      suspend: suspends,
      snapshots,
      snapshotXattrs: snapshots && abilities.xattrs,
    },
    notes: {
      ...known,
      ...(freezes && { freeze: HOW_FROZEN }),
      ...(snapshots && { snapshots: HOW_KEPT }),
      ...(snapshots && !abilities.xattrs && { snapshotXattrs: 'there are no extended attributes' }),
    },
  };
}
