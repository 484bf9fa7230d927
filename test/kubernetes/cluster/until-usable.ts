/** Waits until pods can be made, which is later than when the API server says that it is ready. */
import { CoreV1Api, KubeConfig } from '@kubernetes/client-node';

const START_MS = 120_000;

export async function untilUsable({ kubeconfig }: { kubeconfig: string }, { nodes }: { nodes: boolean }): Promise<void> {
  const config = new KubeConfig();
  config.loadFromFile(kubeconfig);
  const core = config.makeApiClient(CoreV1Api);
  const deadline = Date.now() + START_MS;
  let last: unknown;
  for (;;) {
    try {
      last = await missing(core, nodes);
      if (last === undefined) return;
    } catch (error) {
      last = error;
    }
    if (Date.now() > deadline)
      throw new Error(`it is not usable after ${START_MS / 1000} s: ${last instanceof Error ? last.message : String(last)}`);
    await new Promise((resolve) => setTimeout(resolve, 100));
  }
}

async function missing(core: CoreV1Api, nodes: boolean): Promise<string | undefined> {
  await core.readNamespacedServiceAccount({ name: 'default', namespace: 'default' });
  await core.readNamespacedConfigMap({ name: 'kube-root-ca.crt', namespace: 'default' });
  if (!nodes) return undefined;
  const [node] = (await core.listNode()).items;
  if (!node) return 'there is no node';
  if (node.status?.conditions?.find(({ type }) => type === 'Ready')?.status !== 'True') return 'the node is not ready';
  return (node.spec?.taints ?? []).length > 0 ? 'the node has taints' : undefined;
}
