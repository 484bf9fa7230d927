import { CayError } from '@cay/sdk/protocol';
import type { KubernetesSettings } from './settings.ts';
import type { TenancySettings } from './tenancy.ts';

/** Where sandboxes are unless told otherwise, in a namespace that is ours. */
const OUR_NAMESPACE = 'cay-sandboxes';
const DEFAULT_PODS = 100;
const QUANTITY = /^\d+(\.\d+)?(m|k|M|G|T|Ki|Mi|Gi|Ti)?$/;
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
  const tenancy = tenancyIn(read);
  return {
    guestImage,
    baseImage: read('BASE_IMAGE') ?? 'debian:stable-slim',
    namespace: read('NAMESPACE') ?? (tenancy && OUR_NAMESPACE),
    ...(tenancy && { tenancy }),
    context: read('CONTEXT'),
    installation: read('INSTALLATION') ?? installation,
    runtimeClass: read('RUNTIME_CLASS'),
    pullPolicy: pullPolicy as KubernetesSettings['pullPolicy'],
    pullSecrets: read('PULL_SECRETS')?.split(','),
    ...(leaseSeconds !== undefined && { leaseSeconds: Number(leaseSeconds) }),
  };
}

function tenancyIn(read: (name: string) => string | undefined): TenancySettings | undefined {
  const mode = read('TENANCY') ?? 'projects';
  if (mode === 'unmanaged') return undefined;
  if (mode !== 'projects' && mode !== 'installation') {
    throw new CayError('invalid_argument', `"CAY_KUBERNETES_TENANCY" is "${mode}": must be one of projects, installation, unmanaged`);
  }
  const pods = read('QUOTA_PODS') ?? String(DEFAULT_PODS);
  if (!/^\d{1,9}$/.test(pods)) throw new CayError('invalid_argument', `"CAY_KUBERNETES_QUOTA_PODS" is "${pods}": must be a whole number`);
  const quantity = (name: string) => {
    const amount = read(name);
    if (amount === undefined || QUANTITY.test(amount)) return amount;
    throw new CayError('invalid_argument', `"CAY_KUBERNETES_${name}" is "${amount}": must be an amount such as 16, 500m or 64Gi`);
  };
  return {
    perProject: mode === 'projects',
    pods: Number(pods),
    cpu: quantity('QUOTA_CPU'),
    memory: quantity('QUOTA_MEMORY'),
    maxCpu: quantity('MAX_CPU'),
    maxMemory: quantity('MAX_MEMORY'),
  };
}
