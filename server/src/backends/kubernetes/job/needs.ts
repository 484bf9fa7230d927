/** What this backend needs of a cluster: the kinds it uses, and what it does with them. */
import { POD_RIGHTS } from '../tenancy/pod-rights.ts';
import type { Kind, Right } from '../prerequisites.ts';
import { VOLUME_RIGHTS } from '../volumes/volume-settings.ts';

export const KINDS: Kind[] = [
  { groupVersion: 'batch/v1', resource: 'jobs', hint: 'Kubernetes 1.27 or newer is needed' },
];

/** What is made for sandboxes, pods with the Job, and for named volumes. */
export const OWNED_KINDS = ['Job', 'Pod', 'PersistentVolumeClaim'] as const;

export const RIGHTS: Right[] = [
  {
    group: 'batch',
    resource: 'jobs',
    verbs: ['create', 'get', 'list', 'watch', 'patch', 'delete'],
    why: 'a sandbox is a Job',
  },
  ...POD_RIGHTS,
  ...VOLUME_RIGHTS,
];
