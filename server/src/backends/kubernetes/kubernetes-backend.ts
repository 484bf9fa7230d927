import type { Backend } from '../backend.ts';
import { compositeBackend } from '../composite/composite.ts';
import { kubernetesClient, type KubernetesClient } from './client/kubernetes-client.ts';
import { networkEnforcing, type NetworkEnforcing } from './tenancy/network-enforcement.ts';
import { probeNetwork, type ProbeOptions } from './tenancy/network-probe.ts';
import { podBackend, type PodBackendOptions } from './pod-backend.ts';
import type { PodBackendKind } from './pod-kind.ts';
import { projectNamespaces } from './tenancy/project-namespaces.ts';
import type { NamespaceScope } from './namespace-scope.ts';
import { checkSettings } from './settings.ts';

/**
 * A backend on Kubernetes: all of its sandboxes in one namespace, or those of each project in one of their
 * own.
 */
export async function kubernetesBackend(kind: PodBackendKind, options: PodBackendOptions): Promise<Backend> {
  const client = await kubernetesClient(options);
  const namespace = options.namespace ?? client.namespace ?? 'default';
  const network = enforcingOf(kind, options, { client, namespace });
  const backend = options.tenancy?.perProject
    ? await perProject(kind, options, { client, namespace, network })
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

/** The sandboxes of each project in a namespace of their own. */
async function perProject(
  kind: PodBackendKind,
  options: PodBackendOptions,
  { client, namespace, network }: NamespaceScope,
): Promise<Backend> {
  const members = projectNamespaces({
    client,
    namespace,
    installation: options.installation ?? 'default',
    open: (scope) => podBackend(kind, options, { ...scope, network }),
    onError: (error) => options.onError?.(error),
  });
  const common = await members.get(members.fallback);
  return compositeBackend(members, {
    name: kind.name,
    capabilities: (scope) => common.capabilities(scope),
  });
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
