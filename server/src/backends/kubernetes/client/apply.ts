/** Server-side apply: the cluster keeps apart what we say of an object from what others say of it. */
import { CayError } from '@cay/sdk/protocol';
import type { KubernetesClient } from './kubernetes-client.ts';
import { LABELS, MANAGER } from './names.ts';
import type { KubernetesObject } from './objects.ts';

/** An object as it should be. */
export interface Declared {
  apiVersion: string;
  kind: string;
  metadata: {
    name: string;
    namespace?: string;
    labels?: Record<string, string>;
    annotations?: Record<string, string>;
  };
  [field: string]: unknown;
}

/** In the plural, as in paths, by kind. */
const RESOURCES: Record<string, string> = {
  Namespace: 'namespaces',
  ResourceQuota: 'resourcequotas',
  LimitRange: 'limitranges',
  NetworkPolicy: 'networkpolicies',
  PersistentVolumeClaim: 'persistentvolumeclaims',
  Service: 'services',
  ServiceAccount: 'serviceaccounts',
  Deployment: 'deployments',
  Role: 'roles',
  RoleBinding: 'rolebindings',
  ClusterRole: 'clusterroles',
  ClusterRoleBinding: 'clusterrolebindings',
  ValidatingAdmissionPolicy: 'validatingadmissionpolicies',
  ValidatingAdmissionPolicyBinding: 'validatingadmissionpolicybindings',
};

/**
 * Fields of ours that are empty lists: nobody else may add to them either. The cluster does not store an
 * empty list, so declaring one would be a change each time.
 */
const SILENT: Record<string, string[]> = { NetworkPolicy: ['ingress', 'egress'] };

export function pathOf({ apiVersion, kind, metadata: { name, namespace } }: Declared): string {
  const resource = RESOURCES[kind];
  if (resource === undefined) throw new CayError('internal', `Objects of kind "${kind}" are not applied`);
  const base = apiVersion.includes('/') ? `/apis/${apiVersion}` : `/api/${apiVersion}`;
  return `${base}${namespace === undefined ? '' : `/namespaces/${namespace}`}/${resource}/${name}`;
}

/**
 * Makes the object as declared. Fields that others have changed are put back, fields that we declared earlier
 * and no longer declare are removed, and fields that only others set stay. Rejects `failed_precondition` for
 * an object of that name that is not ours. Resolves whether it is new.
 */
export async function applyOurs(
  client: KubernetesClient,
  object: Declared,
  installation: string,
  signal?: AbortSignal,
): Promise<boolean> {
  const path = pathOf(object);
  const named = `${object.kind} "${object.metadata.name}"`;
  const found = (await client.json('GET', path, { action: `look at ${named}`, allow: [404], signal })) as
    | KubernetesObject
    | undefined;
  if (found && found.metadata.labels?.[LABELS.installation] !== installation) {
    throw new CayError(
      'failed_precondition',
      `Cannot keep ${named}: it does not carry the labels of this installation`,
      {
        details: { reason: 'foreign_object', kind: object.kind, name: object.metadata.name },
        hint: `name another namespace, or hand it over: kubectl label ${object.kind.toLowerCase()} ${object.metadata.name}${
          object.metadata.namespace === undefined ? '' : ` --namespace ${object.metadata.namespace}`
        } ${LABELS.managedBy}=${MANAGER} ${LABELS.installation}=${installation}`,
      },
    );
  }
  const apply = (body: object) =>
    client.json('PATCH', path, {
      action: `apply ${named}`,
      query: { fieldManager: MANAGER, force: true },
      body,
      type: 'application/apply-patch+yaml',
      signal,
    });
  const { spec = {} } = (await apply(object)) as { spec?: Record<string, unknown[] | undefined> };
  const declared = object['spec'] as Record<string, unknown> | undefined;
  const said =
    SILENT[object.kind]?.filter((list) => spec[list]?.length && declared?.[list] === undefined) ?? [];
  if (said.length > 0)
    await apply({ ...object, spec: { ...declared, ...Object.fromEntries(said.map((list) => [list, []])) } });
  return !found;
}
