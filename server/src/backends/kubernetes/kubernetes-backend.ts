import type { Backend, Sweeping } from '../backend.ts';
import { kubernetesClient, type KubernetesClient } from './client/kubernetes-client.ts';
import { networkEnforcing, type NetworkEnforcing } from './tenancy/network-enforcement.ts';
import { probeNetwork, type ProbeOptions } from './tenancy/network-probe.ts';
import { podBackend, type PodBackendKind, type PodBackendOptions } from './pod-backend.ts';
import { projectNamespaces } from './tenancy/project-namespaces.ts';
import { checkSettings } from './settings.ts';

/**
 * A backend on Kubernetes: all of its sandboxes in one namespace, or those of each project in one of their
 * own.
 */
export async function kubernetesBackend(
  kind: PodBackendKind,
  options: PodBackendOptions,
): Promise<Backend & Sweeping> {
  const client = await kubernetesClient(options);
  const namespace = options.namespace ?? client.namespace ?? 'default';
  const network = enforcingOf(kind, options, { client, namespace });
  const backend = options.tenancy?.perProject
    ? projectNamespaces({
        client,
        namespace,
        installation: options.installation ?? 'default',
        open: (whereabouts) => podBackend(kind, options, { ...whereabouts, network }),
        onError: (error) => options.onError?.(error),
      })
    : podBackend(kind, options, { client, namespace, network });
  return {
    ...backend,
    async close() {
      await network?.stop();
      await backend.close();
      client.close();
    },
  };
}

/** One for the cluster: what enforces a NetworkPolicy does so in every namespace. */
function enforcingOf(
  kind: PodBackendKind,
  options: PodBackendOptions,
  place: { client: KubernetesClient; namespace: string },
): NetworkEnforcing | undefined {
  const { probeNetwork: wanted = false, requireNetworkPolicy: required = false } = options;
  if (!wanted && !required) return undefined;
  const settings = { ...options, ...checkSettings(options) };
  const render: ProbeOptions['render'] = (probe) => kind.renderProbe(probe, place);
  return networkEnforcing({
    required,
    onError: (error) => options.onError?.(error),
    probe: (runtime, signal) =>
      probeNetwork({ ...place, installation: settings.installation, settings, render, signal }, runtime),
  });
}
