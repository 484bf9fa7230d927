/**
 * Whether the cluster has the kinds and gives us the rights that a backend needs, asked before anything is
 * tried.
 */
import { CayError } from '@cay/sdk/protocol';
import type { KubernetesClient } from './client/kubernetes-client.ts';

export interface Right {
  /** `''` is the core group. */
  group: string;
  resource: string;
  subresource?: string;
  /** Of the only one that it is about. */
  name?: string;
  verbs: string[];
  /** Of the cluster and not of a namespace. */
  clusterWide?: boolean;
  /** What fails without it is a convenience. */
  optional?: boolean;
  /** What it is for. */
  why?: string;
}

export interface Kind {
  /** Such as `batch/v1`. */
  groupVersion: string;
  /** In the plural, as in paths. */
  resource: string;
  /** What to do if it is not installed. */
  hint: string;
}

/**
 * Rejects `failed_precondition` naming all kinds that are missing, or `permission_denied` naming all rights
 * that are.
 */
export async function requirePrerequisites(
  client: KubernetesClient,
  options: { namespace: string; kinds: Kind[]; rights: Right[]; signal?: AbortSignal },
): Promise<void> {
  const { namespace, kinds, rights, signal } = options;
  const installed = await Promise.all(kinds.map((kind) => isInstalled(client, kind, signal)));
  const absent = kinds.filter((_, at) => !installed[at]);
  if (absent.length > 0) {
    throw new CayError(
      'failed_precondition',
      `Cannot use Kubernetes: it has no ${absent.map(({ groupVersion, resource }) => `"${resource}" of ${groupVersion}`).join(', ')}`,
      {
        details: {
          reason: 'kind_missing',
          kinds: absent.map(({ groupVersion, resource }) => `${groupVersion}/${resource}`),
        },
        hint: absent[0]!.hint,
      },
    );
  }
  const asked = rights
    .filter(({ optional }) => !optional)
    .flatMap((right) => right.verbs.map((verb) => ({ ...right, verb })));
  const answers = await Promise.all(asked.map((right) => mayWe(client, right, namespace, signal)));
  const denied = asked.filter((_, at) => !answers[at]);
  if (denied.length === 0) return;
  const named = denied.map(
    ({ verb, group, resource, subresource }) =>
      `${verb} ${resource}${subresource ? `/${subresource}` : ''}${group ? `.${group}` : ''}`,
  );
  const first = denied[0]!;
  throw new CayError(
    'permission_denied',
    `Cannot use Kubernetes: the account lacks these rights in namespace "${namespace}": ${named.join(', ')}`,
    {
      details: { reason: 'rights_missing', rights: named },
      hint: `kubectl create role cay --namespace ${namespace} --verb=${first.verb} --resource=${first.resource}${first.group ? `.${first.group}` : ''}${first.subresource ? `/${first.subresource}` : ''}, and bind it to the account; "cay kubernetes render" prints all that is needed`,
    },
  );
}

export async function isInstalled(
  client: KubernetesClient,
  { groupVersion, resource }: Kind,
  signal?: AbortSignal,
): Promise<boolean> {
  const path = groupVersion.includes('/') ? `/apis/${groupVersion}` : `/api/${groupVersion}`;
  const found = (await client.json('GET', path, {
    action: `look for ${groupVersion}`,
    allow: [404],
    signal,
  })) as { resources?: { name: string }[] } | undefined;
  return found?.resources?.some(({ name }) => name === resource) ?? false;
}

export async function mayWe(
  client: KubernetesClient,
  right: Omit<Right, 'verbs'> & { verb: string },
  namespace: string,
  signal?: AbortSignal,
): Promise<boolean> {
  const { group, resource, subresource, name, verb, clusterWide } = right;
  const attributes = { group, resource, subresource, name, verb, ...(!clusterWide && { namespace }) };
  const answer = (await client.json('POST', '/apis/authorization.k8s.io/v1/selfsubjectaccessreviews', {
    action: 'ask which rights the account has',
    body: {
      apiVersion: 'authorization.k8s.io/v1',
      kind: 'SelfSubjectAccessReview',
      spec: { resourceAttributes: attributes },
    },
    signal,
  })) as { status?: { allowed?: boolean } };
  return answer.status?.allowed === true;
}
