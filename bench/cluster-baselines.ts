/**
 * What a cluster does without us, asked for as `kubectl` and its controllers do it: the other side of each
 * comparison.
 */
import { execFile } from 'node:child_process';
import { promisify } from 'node:util';
import { newId } from '@cay/sdk/protocol';
import { kubernetesClient } from '../server/src/backends/kubernetes/client/kubernetes-client.ts';
import type { Condition, KubernetesObject, List } from '../server/src/backends/kubernetes/client/objects.ts';
import type { Cluster } from '../test/kubernetes/cluster/cluster.ts';
import { execIn } from '../test/kubernetes/cluster/exec-in.ts';
import { BASE_IMAGE } from '../test/kubernetes/cluster/sandbox-images.ts';

const EXTENSIONS = 'extensions.agents.x-k8s.io/v1beta1';
const READY_MS = 120_000;

type Conditioned = KubernetesObject & {
  status?: { conditions?: Condition[]; readyReplicas?: number; sandbox?: { name: string } };
};

export interface ClusterBaselines {
  /**
   * How long a pod with nothing but this image takes, from the request until a watch tells that it is ready.
   */
  pod(options: PodOptions): Promise<Took>;
  /** The same of a claim from the warm pool of a namespace. */
  claim(namespace: string): Promise<Took>;
  /** Resolves when the pool of the namespace has all that it should have. */
  poolFilled(namespace: string, replicas: number): Promise<void>;
  /** A fresh exec of `true` over the API. */
  exec(namespace: string, pod: string): Promise<void>;
  /** The same by the program; absent where there is none. */
  kubectlExec: ((namespace: string, pod: string) => Promise<void>) | undefined;
  close(): void;
}

interface Took {
  readyMs: number;
  /** Until a first exec of `true` over the API has ended. */
  execMs: number;
}

interface PodOptions {
  runtimeClass?: string;
  /** Without the account that every pod has unless it says otherwise, and so without a single volume. */
  barest?: boolean;
}

export async function clusterBaselines({ kubeconfig }: Cluster): Promise<ClusterBaselines> {
  const client = await kubernetesClient({ kubeconfig });
  const action = 'measure the cluster itself';
  const run = promisify(execFile);
  const kubectl = (...args: string[]) => run('kubectl', ['--kubeconfig', kubeconfig, ...args]);
  const hasKubectl = await kubectl('version', '--client').then(
    () => true,
    () => false,
  );

  const exec = async (namespace: string, pod: string) =>
    void (await execIn(client, { namespace, pod, argv: ['true'] }));

  /** Makes an object, and resolves with how long it took. It is removed then. */
  async function took(namespace: string, api: string, kind: string, body: object): Promise<Took> {
    const collection = `${api}/namespaces/${namespace}/${kind}`;
    const name = `bench-${newId('sbx').slice(4).toLowerCase()}`;
    const enough = new AbortController();
    const { metadata } = (await client.json('GET', collection, {
      action,
      query: { limit: 1 },
    })) as List<Conditioned>;
    const query = {
      watch: true,
      fieldSelector: `metadata.name=${name}`,
      resourceVersion: metadata.resourceVersion,
    };
    const signal = AbortSignal.any([enough.signal, AbortSignal.timeout(READY_MS)]);
    const seen = (async () => {
      for await (const event of client.lines(collection, { action, query, signal })) {
        const { object } = event as { object: Conditioned };
        if (object.status?.conditions?.some(({ type, status }) => type === 'Ready' && status === 'True'))
          return object;
      }
      throw new Error(`${collection}/${name} did not become ready`);
    })();
    seen.catch(() => {}); // it is awaited below, when the object is made
    try {
      const start = performance.now();
      await client.json('POST', collection, { action, body: { metadata: { name }, ...body } });
      const object = await seen;
      const readyMs = performance.now() - start;
      // Of a claim, the Sandbox that was given for it has the pod's name.
      await exec(namespace, object.status?.sandbox?.name ?? name);
      return { readyMs, execMs: performance.now() - start };
    } finally {
      enough.abort();
      await client.json('DELETE', `${collection}/${name}`, {
        action,
        query: { gracePeriodSeconds: 0 },
        allow: [404],
      });
    }
  }

  const pools = async (namespace: string) =>
    (
      (await client.json('GET', `/apis/${EXTENSIONS}/namespaces/${namespace}/sandboxwarmpools`, {
        action,
      })) as List<Conditioned>
    ).items;

  return {
    pod: ({ runtimeClass, barest = false }) =>
      took('default', '/api/v1', 'pods', {
        apiVersion: 'v1',
        kind: 'Pod',
        spec: {
          ...(runtimeClass !== undefined && { runtimeClassName: runtimeClass }),
          ...(barest && { automountServiceAccountToken: false }),
          containers: [
            { name: 'main', image: BASE_IMAGE, imagePullPolicy: 'Never', command: ['sleep', '100000'] },
          ],
        },
      }),

    async claim(namespace) {
      const [pool] = await pools(namespace);
      if (!pool) throw new Error(`There is no warm pool in "${namespace}"`);
      return took(namespace, `/apis/${EXTENSIONS}`, 'sandboxclaims', {
        apiVersion: EXTENSIONS,
        kind: 'SandboxClaim',
        spec: { warmPoolRef: { name: pool.metadata.name } },
      });
    },

    async poolFilled(namespace, replicas) {
      const deadline = Date.now() + READY_MS;
      while ((await pools(namespace))[0]?.status?.readyReplicas !== replicas) {
        if (Date.now() > deadline) throw new Error(`The warm pool of "${namespace}" does not fill`);
        await new Promise((resolve) => setTimeout(resolve, 100));
      }
    },

    exec,
    kubectlExec: hasKubectl
      ? async (namespace, pod) => void (await kubectl('exec', '--namespace', namespace, pod, '--', 'true'))
      : undefined,
    close: () => client.close(),
  };
}
