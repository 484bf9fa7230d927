/** What this backend needs of a cluster: the kinds it uses, and what it does with them. */
import { POD_RIGHTS } from '../tenancy/pod-rights.ts';
import type { Kind, Right } from '../prerequisites.ts';
import { VOLUME_RIGHTS } from '../volumes/volume-settings.ts';

const RELEASE = 'https://github.com/kubernetes-sigs/agent-sandbox/releases/download/v0.5.6';
const install = (file: string) => `Install agent-sandbox 0.5 or newer: kubectl apply -f ${RELEASE}/${file}`;

const CORE = 'agents.x-k8s.io';
const EXTENSIONS = 'extensions.agents.x-k8s.io';
const ALL = ['create', 'get', 'list', 'watch', 'patch', 'delete'];

export const KINDS: Kind[] = [
  { groupVersion: `${CORE}/v1beta1`, resource: 'sandboxes', hint: install('sandbox.yaml') },
];

/** What is made for sandboxes, pods and claims for their files with the Sandbox, and for named volumes. */
export const OWNED_KINDS = ['Sandbox', 'Pod', 'PersistentVolumeClaim'];
export const OWNED_POOL_KINDS = ['SandboxTemplate', 'SandboxWarmPool', 'SandboxClaim'];

export const RIGHTS: Right[] = [
  { group: CORE, resource: 'sandboxes', verbs: ALL, why: 'a sandbox is a Sandbox' },
  ...POD_RIGHTS,
  ...VOLUME_RIGHTS,
];

/** What a warm pool needs besides. */
export const POOL_KINDS: Kind[] = ['sandboxtemplates', 'sandboxwarmpools', 'sandboxclaims'].map(
  (resource) => ({
    groupVersion: `${EXTENSIONS}/v1beta1`,
    resource,
    hint: install('sandbox-with-extensions.yaml'),
  }),
);

export const POOL_RIGHTS: Right[] = [
  {
    group: EXTENSIONS,
    resource: 'sandboxclaims',
    verbs: ALL,
    why: 'a sandbox is had from the warm pool by a claim',
  },
  ...['sandboxtemplates', 'sandboxwarmpools'].map((resource) => ({
    group: EXTENSIONS,
    resource,
    verbs: ['create', 'get', 'list', 'patch', 'delete'],
    why: 'the warm pool and what its sandboxes are',
  })),
];
