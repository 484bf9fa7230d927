/** What this backend needs of a cluster: the kinds it uses, and what it does with them. */
import type { Kind, Right } from '../kubernetes/prerequisites.ts';

export const KINDS: Kind[] = [{ groupVersion: 'batch/v1', resource: 'jobs', hint: 'Kubernetes 1.27 or newer is needed' }];

export const RIGHTS: Right[] = [
  { group: 'batch', resource: 'jobs', verbs: ['create', 'get', 'list', 'watch', 'patch', 'delete'] },
  { group: '', resource: 'pods', verbs: ['get', 'list', 'watch'] },
  // Over a WebSocket an exec is a GET, by older clients a POST; API servers ask for either.
  { group: '', resource: 'pods', subresource: 'exec', verbs: ['create', 'get'] },
  { group: '', resource: 'events', verbs: ['list'], optional: true },
  { group: 'node.k8s.io', resource: 'runtimeclasses', verbs: ['list'], clusterWide: true, optional: true },
];
