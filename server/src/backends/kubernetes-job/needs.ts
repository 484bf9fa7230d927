/** What this backend needs of a cluster: the kinds it uses, and what it does with them. */
import type { Kind, Right } from '../kubernetes/prerequisites.ts';

export const KINDS: Kind[] = [{ groupVersion: 'batch/v1', resource: 'jobs', hint: 'Kubernetes 1.27 or newer is needed' }];

/** What is made for sandboxes; pods come with the Job. */
export const OWNED_KINDS = ['Job', 'Pod'] as const;

export const RIGHTS: Right[] = [
  { group: 'batch', resource: 'jobs', verbs: ['create', 'get', 'list', 'watch', 'patch', 'delete'], why: 'a sandbox is a Job' },
  { group: '', resource: 'pods', verbs: ['get', 'list', 'watch'], why: 'how the pod of a sandbox stands' },
  // Over a WebSocket an exec is a GET, by older clients a POST; API servers ask for either.
  { group: '', resource: 'pods', subresource: 'exec', verbs: ['create', 'get'], why: 'the guest is reached through it' },
  { group: '', resource: 'events', verbs: ['list'], optional: true, why: 'tells why a pod is not started' },
  {
    group: 'node.k8s.io',
    resource: 'runtimeclasses',
    verbs: ['list'],
    clusterWide: true,
    optional: true,
    why: 'which runtimes a sandbox can ask for',
  },
];
