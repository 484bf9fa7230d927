import type { KubernetesClient } from './kubernetes-client.ts';
import type { Account } from '../tenancy/tenancy.ts';

const ACCOUNT = /^system:serviceaccount:([^:]+):([^:]+)$/;

/**
 * Who we are for the cluster, if that is a service account: only such a one has no rights but those that are
 * given to it.
 */
export async function ownAccount(client: KubernetesClient): Promise<Account | undefined> {
  const answer = (await client.json('POST', '/apis/authentication.k8s.io/v1/selfsubjectreviews', {
    action: 'ask who we are for the cluster',
    body: { apiVersion: 'authentication.k8s.io/v1', kind: 'SelfSubjectReview' },
  })) as { status?: { userInfo?: { username?: string } } };
  const [, namespace, name] = ACCOUNT.exec(answer.status?.userInfo?.username ?? '') ?? [];
  return namespace === undefined || name === undefined ? undefined : { namespace, name };
}
