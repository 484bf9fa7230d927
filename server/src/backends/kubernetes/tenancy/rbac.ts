/** The rights of the server's account, from the same list that is checked when it starts. */
import type { Declared } from '../client/apply.ts';
import { LABELS, MANAGER } from '../client/names.ts';
import type { Right } from '../prerequisites.ts';
import { serverPolicy } from './server-policy.ts';
import { sandboxesBinding, sandboxesRole, type Account } from './tenancy.ts';

export interface RbacOptions {
  installation: string;
  /** Where sandboxes are, those of projects in namespaces beside it. */
  namespace: string;
  rights: Right[];
  /** Whom they are given to. */
  account: Account;
  /** Projects have namespaces of their own, in which the account gives itself its rights. */
  perProject: boolean;
}

interface Rule {
  apiGroups: string[];
  resources: string[];
  resourceNames?: string[];
  verbs: string[];
}

const RBAC = 'rbac.authorization.k8s.io';
const apiVersion = `${RBAC}/v1`;

export function rulesOf(rights: Right[]): Rule[] {
  return rights.map(({ group, resource, subresource, name, verbs }) => ({
    apiGroups: [group],
    resources: [subresource === undefined ? resource : `${resource}/${subresource}`],
    ...(name !== undefined && { resourceNames: [name] }),
    verbs,
  }));
}

/**
 * A Role for what is in the namespace, a ClusterRole for what is in none, and their bindings; for projects
 * also what bounds the account.
 */
export function rbacObjects({
  installation,
  namespace,
  rights,
  account,
  perProject,
}: RbacOptions): Declared[] {
  const labels = { [LABELS.managedBy]: MANAGER, [LABELS.installation]: installation };
  const within = rulesOf(rights.filter(({ clusterWide }) => !clusterWide));
  const beyond = rulesOf(rights.filter(({ clusterWide }) => clusterWide));
  return [
    { apiVersion: 'v1', kind: 'ServiceAccount', metadata: { ...account, labels } },
    ...(perProject
      ? [
          {
            apiVersion,
            kind: 'ClusterRole',
            metadata: { name: sandboxesRole(installation), labels },
            rules: within,
          },
          sandboxesBinding({ namespace, installation, account, labels }),
          ...serverPolicy({ installation, account, labels }),
        ]
      : bound('Role', { name: 'cay-server', namespace, labels }, within, account)),
    // Several installations may share a cluster, and its names.
    ...(beyond.length > 0
      ? bound('ClusterRole', { name: `cay-server-${installation}`, labels }, beyond, account)
      : []),
  ];
}

function bound(
  kind: 'Role' | 'ClusterRole',
  metadata: Declared['metadata'],
  rules: Rule[],
  account: Account,
): Declared[] {
  const roleRef = { apiGroup: RBAC, kind, name: metadata.name };
  return [
    { apiVersion, kind, metadata, rules },
    {
      apiVersion,
      kind: `${kind}Binding`,
      metadata,
      roleRef,
      subjects: [{ kind: 'ServiceAccount', ...account }],
    },
  ];
}
