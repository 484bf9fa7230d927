import type { KubernetesClient } from '../client/kubernetes-client.ts';
import type { ProbeObject, ProbeOptions } from '../tenancy/network-probe.ts';
import { CORE_VERSION, moment } from './sandbox.ts';

/** The Sandbox of a pod with which the network is tried. */
export function renderSandboxProbe(
  { name, labels, pod, seconds }: Parameters<ProbeOptions['render']>[0],
  { namespace, client }: { namespace: string; client: Pick<KubernetesClient, 'now'> },
): ProbeObject {
  return {
    path: `/apis/${CORE_VERSION}/namespaces/${namespace}/sandboxes`,
    body: {
      apiVersion: CORE_VERSION,
      kind: 'Sandbox',
      metadata: { name, namespace, labels },
      spec: {
        podTemplate: { metadata: { labels }, spec: pod },
        service: false,
        operatingMode: 'Running',
        shutdownTime: moment(client.now() + seconds * 1000),
        shutdownPolicy: 'Delete',
      },
    },
  };
}
