/** The controller of agent-sandbox beside a cluster, and its kinds in it. */
import { readdir, readFile } from 'node:fs/promises';
import { request } from 'node:https';
import { kubernetesClient } from '../../../server/src/backends/kubernetes/client/kubernetes-client.ts';
import type {
  Condition,
  KubernetesObject,
  List,
} from '../../../server/src/backends/kubernetes/client/objects.ts';
import type { Cluster } from './cluster.ts';
import type { Daemon } from './control-plane.ts';
import type { Parts } from './parts.ts';

export const AGENT_SANDBOX = 'agent-sandbox' as const;
const CRDS = '/apis/apiextensions.k8s.io/v1/customresourcedefinitions';
const READY_MS = 30_000;

interface Definition extends KubernetesObject {
  status?: { conditions?: Condition[] };
}

export function agentSandboxController(parts: Parts, directory: string): Daemon {
  return {
    name: AGENT_SANDBOX,
    argv: [
      `${parts.directory(AGENT_SANDBOX)}/agent-sandbox-controller`,
      '--leader-elect=false',
      '--extensions',
      // Only for versions that nobody here asks for.
      '--enable-webhook=false',
      '--manage-webhook-certs=false',
      '--metrics-bind-address=0',
      '--health-probe-bind-address=0',
    ],
    env: { KUBECONFIG: `${directory}/pki/admin.kubeconfig` },
  };
}

/** Makes the kinds known, and lets the controller go. */
export async function installAgentSandbox(cluster: Cluster, parts: Parts): Promise<void> {
  const directory = `${parts.directory(AGENT_SANDBOX)}/crds`;
  const files = (await readdir(directory)).filter((name) => name.endsWith('.yaml'));
  for (const file of files)
    await apply(cluster, file.replace(/^(.*)_(.*)\.yaml$/, '$2.$1'), await readFile(`${directory}/${file}`));
  const client = await kubernetesClient({ kubeconfig: cluster.kubeconfig });
  const deadline = Date.now() + READY_MS;
  try {
    for (;;) {
      const { items } = (await client.json('GET', CRDS, {
        action: 'look for the kinds of agent-sandbox',
      })) as List<Definition>;
      if (items.length >= files.length && items.every(isEstablished)) break;
      if (Date.now() > deadline) throw new Error('The kinds of agent-sandbox are not established');
      await new Promise((resolve) => setTimeout(resolve, 50));
    }
  } finally {
    client.close();
  }
  await cluster.release(AGENT_SANDBOX);
}

function isEstablished({ status }: Definition): boolean {
  return status?.conditions?.some(({ type, status: is }) => type === 'Established' && is === 'True') ?? false;
}

/** As it is in the file: the API server reads YAML, and the backend's client writes none. */
async function apply({ directory, kubeconfig }: Cluster, name: string, yaml: Buffer): Promise<void> {
  const { clusters } = JSON.parse(await readFile(kubeconfig, 'utf8')) as {
    clusters: { cluster: { server: string } }[];
  };
  const [ca, cert, key] = await Promise.all(
    ['ca.crt', 'admin.crt', 'admin.key'].map((file) => readFile(`${directory}/pki/${file}`)),
  );
  const { promise, resolve, reject } = Promise.withResolvers<void>();
  const headers = { 'Content-Type': 'application/apply-patch+yaml' };
  const url = `${clusters[0]!.cluster.server}${CRDS}/${name}?fieldManager=test`;
  const sent = request(url, { method: 'PATCH', ca, cert, key, headers }, (answer) => {
    answer.resume();
    if ((answer.statusCode ?? 500) < 300) resolve();
    else reject(new Error(`The kind "${name}" was refused with status ${answer.statusCode}`));
  });
  sent.on('error', reject);
  sent.end(yaml);
  return promise;
}
