import { CayError } from '@cay/sdk/protocol';
import type { KubernetesSettings } from './settings.ts';

const PULL_POLICIES = ['Always', 'IfNotPresent', 'Never'] as const;

/** The settings that stand in the environment: `CAY_KUBERNETES_…`, and `KUBECONFIG` as everywhere. */
export function kubernetesSettings(env: NodeJS.ProcessEnv, installation: string): KubernetesSettings {
  const read = (name: string) => env[`CAY_KUBERNETES_${name}`] || undefined;
  const guestImage = read('GUEST_IMAGE');
  if (guestImage === undefined) {
    throw new CayError(
      'failed_precondition',
      'Cannot use Kubernetes: "CAY_KUBERNETES_GUEST_IMAGE" does not say which image the guest comes in',
      {
        hint: 'Put the guest into an image that the cluster can pull, and name it there',
      },
    );
  }
  const pullPolicy = read('PULL_POLICY');
  if (pullPolicy !== undefined && !PULL_POLICIES.some((each) => each === pullPolicy)) {
    throw new CayError('invalid_argument', `"CAY_KUBERNETES_PULL_POLICY" is "${pullPolicy}": must be one of ${PULL_POLICIES.join(', ')}`);
  }
  const leaseSeconds = read('LEASE_SECONDS');
  return {
    guestImage,
    baseImage: read('BASE_IMAGE') ?? 'debian:stable-slim',
    namespace: read('NAMESPACE'),
    context: read('CONTEXT'),
    installation: read('INSTALLATION') ?? installation,
    runtimeClass: read('RUNTIME_CLASS'),
    pullPolicy: pullPolicy as KubernetesSettings['pullPolicy'],
    pullSecrets: read('PULL_SECRETS')?.split(','),
    ...(leaseSeconds !== undefined && { leaseSeconds: Number(leaseSeconds) }),
  };
}
