import type { Backend, Sweeping } from '../backend.ts';
import { kubernetesClient } from './kubernetes-client.ts';
import { podBackend, type PodBackendKind, type PodBackendOptions } from './pod-backend.ts';
import { projectNamespaces } from './project-namespaces.ts';

/** A backend on Kubernetes: all of its sandboxes in one namespace, or those of each project in one of their own. */
export async function kubernetesBackend(kind: PodBackendKind, options: PodBackendOptions): Promise<Backend & Sweeping> {
  const client = await kubernetesClient(options);
  const namespace = options.namespace ?? client.namespace ?? 'default';
  const backend = options.tenancy?.perProject
    ? projectNamespaces({
        client,
        namespace,
        installation: options.installation ?? 'default',
        open: (whereabouts) => podBackend(kind, options, whereabouts),
        onError: (error) => options.onError?.(error),
      })
    : podBackend(kind, options, { client, namespace });
  return {
    ...backend,
    async close() {
      await backend.close();
      client.close();
    },
  };
}
