/** Waits until pods can be made, which is later than when the API server says that it is ready. */
import {
  kubernetesClient,
  type KubernetesClient,
} from '../../../server/src/backends/kubernetes/client/kubernetes-client.ts';
import type {
  Condition,
  KubernetesObject,
  List,
} from '../../../server/src/backends/kubernetes/client/objects.ts';

interface Node extends KubernetesObject {
  spec?: { taints?: object[] };
  status?: { conditions?: Condition[] };
}

const START_MS = 120_000;

export async function untilUsable(
  { kubeconfig }: { kubeconfig: string },
  { nodes }: { nodes: boolean },
): Promise<void> {
  const client = await kubernetesClient({ kubeconfig });
  const deadline = Date.now() + START_MS;
  try {
    for (;;) {
      const last = await missing(client, nodes).catch((error: unknown) => error as Error);
      if (last === undefined) return;
      if (Date.now() > deadline)
        throw new Error(
          `it is not usable after ${START_MS / 1000} s: ${last instanceof Error ? last.message : last}`,
        );
      await new Promise((resolve) => setTimeout(resolve, 100));
    }
  } finally {
    client.close();
  }
}

async function missing(client: KubernetesClient, nodes: boolean): Promise<string | undefined> {
  const get = (path: string) => client.json('GET', path, { action: 'look whether the cluster is usable' });
  await get('/api/v1/namespaces/default/serviceaccounts/default');
  await get('/api/v1/namespaces/default/configmaps/kube-root-ca.crt');
  if (!nodes) return undefined;
  const [node] = ((await get('/api/v1/nodes')) as List<Node>).items;
  if (!node) return 'there is no node';
  if (node.status?.conditions?.find(({ type }) => type === 'Ready')?.status !== 'True')
    return 'the node is not ready';
  return (node.spec?.taints ?? []).length > 0 ? 'the node has taints' : undefined;
}
