import type { Right } from '../prerequisites.ts';

/** What claims of named volumes ask the cluster for. */
export interface VolumeSettings {
  /** Default: the cluster's own. */
  storageClass?: string;
  /** The size of a volume that has none of its own. Default 10 GiB. */
  sizeBytes?: number;
  /** Storage of that class refuses what is beyond the size, so that clients may ask for one. */
  enforced?: boolean;
  /** Default `ReadWriteOnce`: all sandboxes that have it are on one node. */
  access?: VolumeAccess;
}

export const VOLUME_ACCESS = ['ReadWriteOnce', 'ReadWriteMany'] as const;
export type VolumeAccess = (typeof VOLUME_ACCESS)[number];

export const DEFAULT_VOLUME_BYTES = 10 * 1024 ** 3;

/** Without them there are no volumes, and everything else is as it is with them. */
export const VOLUME_RIGHTS: Right[] = [
  {
    group: '',
    resource: 'persistentvolumeclaims',
    verbs: ['get', 'list', 'create', 'patch', 'delete'],
    optional: true,
    why: 'a named volume is a claim; removes claims that were left behind',
  },
];
