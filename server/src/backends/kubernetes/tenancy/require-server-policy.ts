/** Refuses to start where nothing confines the server's account to its own namespaces. */
import { setTimeout as sleep } from 'node:timers/promises';
import { CayError, isCayError } from '@cay/sdk/protocol';
import type { KubernetesClient } from '../client/kubernetes-client.ts';
import { ownAccount } from '../client/own-account.ts';

/** The API server takes a policy up a moment after it was made. */
const WITHIN_MS = 10_000;
const AGAIN_MS = 250;

/**
 * An account that may make namespaces and bind rights in them could do so everywhere; a policy of the cluster
 * refuses all but its own. A dry run of what has to be refused shows whether it does. An account that is no
 * service account is an administrator's, and has all rights by intent.
 */
export async function requireServerPolicy(
  client: KubernetesClient,
  {
    installation,
    signal,
    withinMs = WITHIN_MS,
  }: { installation: string; signal?: AbortSignal; withinMs?: number },
): Promise<void> {
  const account = await ownAccount(client);
  if (!account) return;
  const deadline = Date.now() + withinMs;
  while (await mayMakeForeign(client, signal)) {
    if (Date.now() > deadline) {
      throw new CayError(
        'failed_precondition',
        `Cannot use Kubernetes: nothing keeps the account "${account.namespace}/${account.name}" to the namespaces of installation "${installation}"`,
        {
          details: { reason: 'server_policy_missing', policy: `cay-server-${installation}` },
          hint: `have an administrator apply the ValidatingAdmissionPolicy "cay-server-${installation}" and its binding, which "cay kubernetes render" prints; or set CAY_KUBERNETES_TENANCY=installation, which needs neither`,
        },
      );
    }
    await sleep(AGAIN_MS, undefined, { signal });
  }
}

/** Whether the server could make a namespace without our label and without Pod Security. */
async function mayMakeForeign(client: KubernetesClient, signal?: AbortSignal): Promise<boolean> {
  const body = { apiVersion: 'v1', kind: 'Namespace', metadata: { generateName: 'cay-not-ours-' } };
  try {
    const call = { action: 'try what the account may not do', query: { dryRun: 'All' }, body, signal };
    await client.json('POST', '/api/v1/namespaces', call);
    return true;
  } catch (error) {
    if (isCayError(error) && [403, 422].includes(Number(error.details['status']))) return false;
    throw error;
  }
}
