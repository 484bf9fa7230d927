/** What tests do to a cluster behind a backend's back. */
import { newId, type SandboxId } from '@cay/sdk/protocol';
import { kubernetesClient } from '../../../server/src/backends/kubernetes/client/kubernetes-client.ts';
import { LABELS } from '../../../server/src/backends/kubernetes/client/names.ts';
import type { KubernetesObject, List, Pod } from '../../../server/src/backends/kubernetes/client/objects.ts';
import type { Cluster } from './cluster.ts';

export interface Kubectl {
  create(path: string, body: object): Promise<unknown>;
  get<T>(path: string, query?: Record<string, string>): Promise<T>;
  patch(path: string, body: object): Promise<unknown>;
  /** Gone is done. */
  remove(path: string): Promise<void>;
  /** A namespace whose pods have to satisfy Pod Security `restricted`, ready for pods. */
  createNamespace(name: string): Promise<void>;
  /** One with a name that no other case has: the prefix and a few letters. Answers with the name. */
  newNamespace(prefix: string): Promise<string>;
  /** One whose handler has the same name. */
  createRuntimeClass(name: string): Promise<void>;
  pods(namespace: string, id: SandboxId): Promise<Pod[]>;
  /** The node's ids of the containers of a sandbox. */
  containers(namespace: string, id: SandboxId): Promise<string[]>;
  /** The pods, what keeps them, secrets and claims that are in the namespace. */
  names(namespace: string): Promise<string[]>;
  close(): void;
}

const KINDS = {
  jobs: '/apis/batch/v1',
  sandboxes: '/apis/agents.x-k8s.io/v1beta1',
  sandboxclaims: '/apis/extensions.agents.x-k8s.io/v1beta1',
  pods: '/api/v1',
  secrets: '/api/v1',
  persistentvolumeclaims: '/api/v1',
};

export async function kubectl(cluster: Pick<Cluster, 'kubeconfig'>): Promise<Kubectl> {
  const client = await kubernetesClient({ kubeconfig: cluster.kubeconfig });
  const action = 'look behind the backend';
  const self: Kubectl = {
    create: (path, body) => client.json('POST', path, { action, body }),
    get: <T>(path: string, query?: Record<string, string>) =>
      client.json('GET', path, { action, query }) as Promise<T>,
    patch: (path, body) => client.json('PATCH', path, { action, body, type: 'application/merge-patch+json' }),
    async remove(path) {
      await client.json('DELETE', path, { action, allow: [404] });
    },
    async createNamespace(name) {
      const labels = { 'pod-security.kubernetes.io/enforce': 'restricted' };
      await self.create('/api/v1/namespaces', {
        apiVersion: 'v1',
        kind: 'Namespace',
        metadata: { name, labels },
      });
      const deadline = Date.now() + 30_000;
      while (
        !(await client.json('GET', `/api/v1/namespaces/${name}/serviceaccounts/default`, {
          action,
          allow: [404],
        }))
      ) {
        if (Date.now() > deadline) throw new Error(`The namespace "${name}" has no account`);
        await new Promise((resolve) => setTimeout(resolve, 50));
      }
    },
    async newNamespace(prefix) {
      const name = `${prefix}-${newId('sbx').slice(4, 12)}`;
      await self.createNamespace(name);
      return name;
    },
    async createRuntimeClass(name) {
      const body = { apiVersion: 'node.k8s.io/v1', kind: 'RuntimeClass', metadata: { name }, handler: name };
      await self.create('/apis/node.k8s.io/v1/runtimeclasses', body);
    },
    async pods(namespace, id) {
      return (
        await self.get<List<Pod>>(`/api/v1/namespaces/${namespace}/pods`, {
          labelSelector: `${LABELS.sandbox}=${id}`,
        })
      ).items;
    },
    async containers(namespace, id) {
      const statuses = (await self.pods(namespace, id)).flatMap(
        ({ status }) => status?.containerStatuses ?? [],
      );
      return statuses
        .map((status) => (status as { containerID?: string }).containerID?.replace('containerd://', '') ?? '')
        .filter(Boolean);
    },
    async names(namespace) {
      const lists = Object.entries(KINDS).map(async ([kind, api]) => {
        // Not every cluster knows every kind.
        const list = (await client.json('GET', `${api}/namespaces/${namespace}/${kind}`, {
          action,
          allow: [404],
        })) as List<KubernetesObject> | undefined;
        return (list?.items ?? []).map(({ metadata }) => `${kind}/${metadata.name}`);
      });
      return (await Promise.all(lists)).flat();
    },
    close: () => client.close(),
  };
  return self;
}
