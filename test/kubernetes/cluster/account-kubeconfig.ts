import { readFile, writeFile } from 'node:fs/promises';
import { pathOf, type Declared } from '../../../server/src/backends/kubernetes/client/apply.ts';
import { kubernetesClient } from '../../../server/src/backends/kubernetes/client/kubernetes-client.ts';
import type { Cluster } from './cluster.ts';
import type { Kubectl } from './kubectl.ts';

export const APPLY = 'application/apply-patch+yaml';

/**
 * Applies the objects as an administrator would. Resolves with the path of a kubeconfig of the account among
 * them.
 */
export async function accountKubeconfig(
  cluster: Cluster,
  api: Kubectl,
  declared: Declared[],
): Promise<string> {
  const client = await kubernetesClient({ kubeconfig: cluster.kubeconfig });
  try {
    for (const body of declared) {
      const query = { fieldManager: 'cay', force: true };
      await client.json('PATCH', pathOf(body), { action: 'install', query, body, type: APPLY });
    }
  } finally {
    client.close();
  }
  const { name, namespace } = declared.find(({ kind }) => kind === 'ServiceAccount')!.metadata;
  const request = { apiVersion: 'authentication.k8s.io/v1', kind: 'TokenRequest', spec: {} };
  const path = `/api/v1/namespaces/${namespace}/serviceaccounts/${name}/token`;
  const made = (await api.create(path, request)) as { status: { token: string } };
  const own = JSON.parse(await readFile(cluster.kubeconfig, 'utf8')) as { users: { user: object }[] };
  own.users[0]!.user = { token: made.status.token };
  const kubeconfig = `${cluster.directory}/account-${name}`;
  await writeFile(kubeconfig, JSON.stringify(own), { mode: 0o600 });
  return kubeconfig;
}
