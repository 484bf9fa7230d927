/**
 * Who we are for a cluster: its certificates, tokens that are renewed, and login programs, as `kubectl` reads
 * them.
 */
import { Agent as HttpsAgent, type RequestOptions } from 'node:https';
import { CayError } from '@cay/sdk/protocol';
import { systemReason } from '@cay/sdk/system-error';
import type { Cluster, KubeConfig } from '@kubernetes/client-node';
import type { ClientOptions } from './kubernetes-client.ts';

/** How long an identity is used before it is looked up again; tokens in files are renewed within minutes. */
const IDENTITY_MS = 20_000;

export function clusterIdentity(config: KubeConfig, cluster: Cluster) {
  let identity: { options: RequestOptions; at: number } | undefined;
  let agent: HttpsAgent | undefined;

  async function identified(): Promise<RequestOptions> {
    if (identity && Date.now() - identity.at < IDENTITY_MS) return identity.options;
    const found: RequestOptions = {};
    await config.applyToHTTPSOptions(found);
    // One agent for all requests: a connection costs several round trips. Behind a proxy the library's own
    // agent is needed.
    if (!cluster.proxyUrl && new URL(cluster.server).protocol === 'https:') {
      const { ca, cert, key, passphrase, pfx, rejectUnauthorized, servername } = found;
      agent ??= new HttpsAgent({
        ca,
        cert,
        key,
        passphrase,
        pfx,
        rejectUnauthorized,
        servername,
        keepAlive: true,
        maxSockets: 64,
      });
      found.agent = agent;
    }
    identity = { options: found, at: Date.now() };
    return found;
  }

  return {
    identified,
    /** Whether it is the agent of all requests, and not the one that a proxy needs. */
    isShared: (used: RequestOptions['agent']) => agent !== undefined && used === agent,
    close: () => agent?.destroy(),
  };
}

export async function loadConfig({ kubeconfig, context }: ClientOptions): Promise<KubeConfig> {
  // The library is large, and needed only with a cluster.
  const library = await import('@kubernetes/client-node');
  const config = new library.KubeConfig();
  try {
    if (kubeconfig === undefined) config.loadFromDefault();
    else config.loadFromFile(kubeconfig);
    if (context !== undefined) config.setCurrentContext(context);
  } catch (cause) {
    throw new CayError(
      'failed_precondition',
      `Cannot use Kubernetes: the kubeconfig cannot be read: ${systemReason(cause)}`,
      {
        cause,
        hint: 'set KUBECONFIG to a file that "kubectl" accepts',
      },
    );
  }
  return config;
}
