/** What this backend needs of a cluster: the kinds it uses, and what it does with them. */
import type { Kind, Right } from '../kubernetes/prerequisites.ts';

const RELEASE = 'https://github.com/kubernetes-sigs/agent-sandbox/releases/download/v0.5.6';
const install = (file: string) => `Install agent-sandbox 0.5 or newer: kubectl apply -f ${RELEASE}/${file}`;

const CORE = 'agents.x-k8s.io';
const EXTENSIONS = 'extensions.agents.x-k8s.io';
const ALL = ['create', 'get', 'list', 'watch', 'patch', 'delete'];

export const KINDS: Kind[] = [{ groupVersion: `${CORE}/v1beta1`, resource: 'sandboxes', hint: install('sandbox.yaml') }];

export const RIGHTS: Right[] = [
  { group: CORE, resource: 'sandboxes', verbs: ALL },
  { group: '', resource: 'pods', verbs: ['get', 'list', 'watch'] },
  // Over a WebSocket an exec is a GET, by older clients a POST; API servers ask for either.
  { group: '', resource: 'pods', subresource: 'exec', verbs: ['create', 'get'] },
  { group: '', resource: 'events', verbs: ['list'], optional: true },
  { group: 'node.k8s.io', resource: 'runtimeclasses', verbs: ['list'], clusterWide: true, optional: true },
];

/** What a warm pool needs besides. */
export const POOL_KINDS: Kind[] = ['sandboxtemplates', 'sandboxwarmpools', 'sandboxclaims'].map((resource) => ({
  groupVersion: `${EXTENSIONS}/v1beta1`,
  resource,
  hint: install('sandbox-with-extensions.yaml'),
}));

export const POOL_RIGHTS: Right[] = [
  { group: EXTENSIONS, resource: 'sandboxclaims', verbs: ALL },
  ...['sandboxtemplates', 'sandboxwarmpools'].map((resource) => ({
    group: EXTENSIONS,
    resource,
    verbs: ['create', 'get', 'list', 'patch', 'delete'],
  })),
];
