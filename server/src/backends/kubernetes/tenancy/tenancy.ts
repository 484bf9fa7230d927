/**
 * The objects around the sandboxes of a project, or of an installation: a namespace of their own in
 * which only pods that Pod Security `restricted` takes can be made, with a bound for all of them and for
 * each, and no network.
 *
 * Secrets are not among these objects, nor anywhere else: what a sandbox has to know travels to its guest and
 * is in no object of the cluster.
 */
import type { Declared } from '../client/apply.ts';
import { DEFAULT_DISK_BYTES, DISK_REQUEST, EPHEMERAL_STORAGE } from '../workloads/disk.ts';
import { LABELS, MANAGER } from '../client/names.ts';
import type { Right } from '../prerequisites.ts';

export interface TenancySettings {
  /** Each project has a namespace of its own, and these bounds are those of one. */
  perProject?: boolean;
  /** How many pods there may be at once. */
  pods: number;
  /**
   * Of all sandboxes together, as Kubernetes writes amounts: `16`, `64Gi`. Absent: as much as the nodes have.
   */
  cpu?: string;
  memory?: string;
  /** The most that one sandbox may have. */
  maxCpu?: string;
  maxMemory?: string;
  /** What the disk limits of all sandboxes may add up to. Absent: `diskBytes` for each pod. */
  disk?: string;
  maxDisk?: string;
  /** How many volume claims there may be at once, and what they may ask for together. Absent: any. */
  claims?: number;
  storage?: string;
  /** The disk limit of a container that has none. Default 10 GiB. */
  diskBytes?: number;
  /** The pods that may reach guests over the pod network, and the port. Absent: none. */
  direct?: { port: number; namespace: string; labels: Record<string, string> };
}

export const TENANCY_RIGHTS: Right[] = [
  {
    group: '',
    resource: 'namespaces',
    verbs: ['get', 'patch'],
    why: 'puts back the Pod Security labels of the namespace, and of no other',
  },
  {
    group: '',
    resource: 'resourcequotas',
    verbs: ['get', 'create', 'patch'],
    why: 'keeps the bound of all sandboxes together',
  },
  {
    group: '',
    resource: 'limitranges',
    verbs: ['get', 'create', 'patch'],
    why: 'keeps the bounds of one sandbox',
  },
  {
    group: 'networking.k8s.io',
    resource: 'networkpolicies',
    verbs: ['get', 'create', 'patch'],
    why: 'keeps the rule that no sandbox has a network',
  },
];

const RBAC = 'rbac.authorization.k8s.io';

/** Of the account of an installation whose projects have namespaces of their own. */
export function projectRights(installation: string): Right[] {
  return [
    {
      group: '',
      resource: 'namespaces',
      verbs: ['get', 'list', 'create', 'patch'],
      clusterWide: true,
      why: 'makes and finds the namespaces of projects; a policy refuses every other',
    },
    {
      group: RBAC,
      resource: 'rolebindings',
      verbs: ['get', 'create', 'patch'],
      clusterWide: true,
      why: 'gives itself the rights in the namespace of a project; a policy refuses every other',
    },
    {
      group: RBAC,
      resource: 'clusterroles',
      name: sandboxesRole(installation),
      verbs: ['bind'],
      clusterWide: true,
      why: 'those rights are these and no others',
    },
  ];
}

/** The ClusterRole with all rights in a namespace of sandboxes. */
export const sandboxesRole = (installation: string) => `cay-sandboxes-${installation}`;

/** Whom rights are given to. */
export interface Account {
  name: string;
  namespace: string;
}

/** The kinds that are ours in a namespace that we keep. */
export const TENANCY_KINDS = ['Namespace', 'ResourceQuota', 'LimitRange', 'NetworkPolicy'] as const;

const NAME = 'cay-sandboxes';
const LEVELS = ['enforce', 'audit', 'warn'];

export interface TenancyOptions {
  namespace: string;
  installation: string;
  tenancy: TenancySettings;
  /** Whose namespace it is. */
  project?: string;
  /** Who we are, if we have to give ourselves the rights there. */
  account?: Account;
}

export function tenancyObjects(options: TenancyOptions): Declared[] {
  const { namespace, installation, tenancy, project, account } = options;
  const labels = {
    [LABELS.managedBy]: MANAGER,
    [LABELS.installation]: installation,
    ...(project !== undefined && { [LABELS.project]: project }),
  };
  const metadata = { name: NAME, namespace, labels };
  const { diskBytes = DEFAULT_DISK_BYTES } = tenancy;
  // Disk limits are always set: a node whose disk is full evicts all of its pods.
  const all = amounts(tenancy.cpu, tenancy.memory, tenancy.disk ?? String(tenancy.pods * diskBytes));
  const most = amounts(tenancy.maxCpu, tenancy.maxMemory, tenancy.maxDisk);
  return [
    {
      apiVersion: 'v1',
      kind: 'Namespace',
      metadata: {
        name: namespace,
        labels: {
          ...labels,
          ...Object.fromEntries(LEVELS.map((level) => [`pod-security.kubernetes.io/${level}`, 'restricted'])),
        },
      },
    },
    ...(account ? [sandboxesBinding({ namespace, installation, account, labels })] : []),
    {
      apiVersion: 'v1',
      kind: 'ResourceQuota',
      metadata,
      spec: {
        hard: {
          pods: String(tenancy.pods),
          ...Object.fromEntries(Object.entries(all).map(([name, amount]) => [`limits.${name}`, amount])),
          ...(tenancy.claims !== undefined && { persistentvolumeclaims: String(tenancy.claims) }),
          ...(tenancy.storage !== undefined && { 'requests.storage': tenancy.storage }),
          // Sandboxes are reached through the server alone.
          'services.loadbalancers': '0',
          'services.nodeports': '0',
        },
      },
    },
    {
      apiVersion: 'v1',
      kind: 'LimitRange',
      metadata,
      spec: {
        limits: [
          {
            type: 'Container',
            defaultRequest: { cpu: '50m', memory: '64Mi', [EPHEMERAL_STORAGE]: DISK_REQUEST },
            // Where the namespace has a bound, a pod without limits is refused. It gets the whole bound as
            // its limit, and the default of the disk.
            default: { ...all, ...most, [EPHEMERAL_STORAGE]: String(diskBytes) },
            ...(Object.keys(most).length > 0 && { max: most }),
          },
        ],
      },
    },
    {
      apiVersion: 'networking.k8s.io/v1',
      kind: 'NetworkPolicy',
      metadata,
      // An exec goes through the kubelet and not over the network of pods.
      spec: {
        podSelector: {},
        policyTypes: ['Ingress', 'Egress'],
        ...(tenancy.direct && { ingress: [fromServer(tenancy.direct)] }),
      },
    },
  ];
}

/** Gives an account the rights that the server needs in a namespace of sandboxes. */
export function sandboxesBinding(options: {
  namespace: string;
  installation: string;
  account: Account;
  labels: Record<string, string>;
}): Declared {
  const { namespace, installation, account, labels } = options;
  return {
    apiVersion: `${RBAC}/v1`,
    kind: 'RoleBinding',
    metadata: { name: NAME, namespace, labels },
    roleRef: { apiGroup: RBAC, kind: 'ClusterRole', name: sandboxesRole(installation) },
    subjects: [{ kind: 'ServiceAccount', ...account }],
  };
}

function fromServer({ port, namespace, labels }: NonNullable<TenancySettings['direct']>): object {
  return {
    from: [
      {
        namespaceSelector: { matchLabels: { 'kubernetes.io/metadata.name': namespace } },
        podSelector: { matchLabels: labels },
      },
    ],
    ports: [{ port, protocol: 'TCP' }],
  };
}

function amounts(
  cpu: string | undefined,
  memory: string | undefined,
  disk: string | undefined,
): Record<string, string> {
  return {
    ...(cpu !== undefined && { cpu }),
    ...(memory !== undefined && { memory }),
    ...(disk !== undefined && { [EPHEMERAL_STORAGE]: disk }),
  };
}
