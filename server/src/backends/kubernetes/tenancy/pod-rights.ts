import type { Right } from '../prerequisites.ts';

/** The rights on pods that every backend on Kubernetes needs, beside those on its workloads. */
export const POD_RIGHTS: Right[] = [
  {
    group: '',
    resource: 'pods',
    verbs: ['get', 'list', 'watch'],
    why: 'reads the status of the pod of a sandbox',
  },
  {
    group: '',
    resource: 'pods',
    verbs: ['delete'],
    optional: true,
    why: 'removes orphaned pods',
  },
  // Over a WebSocket an exec is a GET, by older clients a POST; API servers ask for either.
  {
    group: '',
    resource: 'pods',
    subresource: 'exec',
    verbs: ['create', 'get'],
    why: 'the guest is reached through it',
  },
  {
    group: '',
    resource: 'events',
    verbs: ['list'],
    optional: true,
    why: 'explains why a pod does not start',
  },
  {
    group: 'node.k8s.io',
    resource: 'runtimeclasses',
    verbs: ['list'],
    clusterWide: true,
    optional: true,
    why: 'which runtimes a sandbox can ask for',
  },
];
