/** The rights of the server's account, from the same list that is checked when it starts. */
import type { Declared } from './apply.ts';
import { LABELS, MANAGER } from './names.ts';
import type { Right } from './prerequisites.ts';

export interface RbacOptions {
  installation: string;
  /** Where sandboxes are. */
  namespace: string;
  rights: Right[];
  /** Whom they are given to. */
  account: { name: string; namespace: string };
}

interface Rule {
  apiGroups: string[];
  resources: string[];
  verbs: string[];
}

export function rulesOf(rights: Right[]): Rule[] {
  return rights.map(({ group, resource, subresource, verbs }) => ({
    apiGroups: [group],
    resources: [subresource === undefined ? resource : `${resource}/${subresource}`],
    verbs,
  }));
}

/** A Role for what is in the namespace, a ClusterRole for what is in none, and their bindings. */
export function rbacObjects({ installation, namespace, rights, account }: RbacOptions): Declared[] {
  const labels = { [LABELS.managedBy]: MANAGER, [LABELS.installation]: installation };
  const subjects = [{ kind: 'ServiceAccount', ...account }];
  const apiVersion = 'rbac.authorization.k8s.io/v1';
  const make = (kind: 'Role' | 'ClusterRole', metadata: Declared['metadata'], rules: Rule[]): Declared[] => [
    { apiVersion, kind, metadata, rules },
    {
      apiVersion,
      kind: `${kind}Binding`,
      metadata,
      roleRef: { apiGroup: 'rbac.authorization.k8s.io', kind, name: metadata.name },
      subjects,
    },
  ];
  const within = rights.filter(({ clusterWide }) => !clusterWide);
  const beyond = rights.filter(({ clusterWide }) => clusterWide);
  return [
    { apiVersion: 'v1', kind: 'ServiceAccount', metadata: { ...account, labels } },
    ...make('Role', { name: 'cay-server', namespace, labels }, rulesOf(within)),
    // Several installations may share a cluster, and its names.
    ...(beyond.length > 0 ? make('ClusterRole', { name: `cay-server-${installation}`, labels }, rulesOf(beyond)) : []),
  ];
}
