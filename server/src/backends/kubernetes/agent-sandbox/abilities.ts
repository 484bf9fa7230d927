import type { PodAbilities } from '../workloads/pod-abilities.ts';
import type { PoolAndStorage } from './settings.ts';

/** What a sandbox of this backend can do, with a volume for its files or without. */
export function abilitiesWith({ storage }: Pick<PoolAndStorage, 'storage'>): PodAbilities {
  return {
    freezes: storage === undefined,
    suspends: storage !== undefined,
    notes: {
      ...(storage && {
        freeze: 'a sandbox with a volume is suspended: its pod ends, and its processes with it',
      }),
      suspend: storage
        ? 'its pod is ended and its volume is kept; waking it makes another pod'
        : "the files of a sandbox are its pod's: set CAY_KUBERNETES_STORAGE for a volume each",
      ...(storage && {
        diskLimit: `its files are on a volume of ${storage.size} each, as CAY_KUBERNETES_STORAGE says`,
      }),
    },
  };
}
