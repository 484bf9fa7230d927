import { CayError } from '@cay/sdk/protocol';
import { DEFAULT_DISK_BYTES, diskBytesOf } from './workloads/disk.ts';
import { SERVER_LABELS } from './client/names.ts';
import { DIRECT_PORT, type KubernetesSettings } from './settings.ts';
import type { TenancySettings } from './tenancy/tenancy.ts';

/** The default namespace of sandboxes, which the server makes. */
const OUR_NAMESPACE = 'cay-sandboxes';
const DEFAULT_PODS = 100;
const QUANTITY = /^\d+(\.\d+)?(m|k|M|G|T|Ki|Mi|Gi|Ti)?$/;
const REACHES = ['exec', 'direct'] as const;
const LABEL = /^[A-Za-z0-9./_-]{1,317}=[A-Za-z0-9._-]{0,63}$/;
const PULL_POLICIES = ['Always', 'IfNotPresent', 'Never'] as const;

/** The settings in the environment: `CAY_KUBERNETES_…` and `KUBECONFIG`. */
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
    throw new CayError(
      'invalid_argument',
      `"CAY_KUBERNETES_PULL_POLICY" is "${pullPolicy}": must be one of ${PULL_POLICIES.join(', ')}`,
    );
  }
  const leaseSeconds = read('LEASE_SECONDS');
  const diskBytes = diskIn(read);
  const serverPort = /:(\d{1,5})$/.exec(env['CAY_LISTEN'] ?? '')?.[1];
  const reach = reachIn(read);
  const tenancy = tenancyIn(read, reach, diskBytes);
  return {
    guestImage,
    baseImage: read('BASE_IMAGE') ?? 'debian:stable-slim',
    templates: templatesIn(read),
    namespace: read('NAMESPACE') ?? (tenancy && OUR_NAMESPACE),
    ...(tenancy && { tenancy }),
    ...reach,
    probeNetwork: true,
    ...(flagIn(read, 'REQUIRE_NETWORK_POLICY') && { requireNetworkPolicy: true }),
    ...(serverPort !== undefined && { serverPort: Number(serverPort) }),
    context: read('CONTEXT'),
    installation: read('INSTALLATION') ?? installation,
    runtimeClass: read('RUNTIME_CLASS'),
    pullPolicy: pullPolicy as KubernetesSettings['pullPolicy'],
    pullSecrets: read('PULL_SECRETS')?.split(','),
    ...(leaseSeconds !== undefined && { leaseSeconds: Number(leaseSeconds) }),
    ...(diskBytes !== undefined && { diskBytes }),
  };
}

type Read = (name: string) => string | undefined;
const TEMPLATE = /^([a-z0-9][a-z0-9._-]{0,63})=([^\s,=]{1,512})$/;

type Reach = Required<Pick<KubernetesSettings, 'reach' | 'directPort'>>;

function flagIn(read: Read, name: string): boolean {
  const text = read(name) ?? '0';
  if (text === '0' || text === '1') return text === '1';
  throw new CayError('invalid_argument', `"CAY_KUBERNETES_${name}" is "${text}": must be 0 or 1`);
}

/** Templates as they are written: `python=python:3.13-slim,node=node:24`. */
function templatesIn(read: Read): Record<string, string> {
  const pairs = (read('TEMPLATES') ?? '').split(',').filter((pair) => pair.trim() !== '');
  return Object.fromEntries(
    pairs.map((pair) => {
      const [, name, image] = TEMPLATE.exec(pair.trim()) ?? [];
      if (name === undefined || image === undefined || name === 'base') {
        throw new CayError(
          'invalid_argument',
          `"CAY_KUBERNETES_TEMPLATES" has "${pair.slice(0, 200)}": must be NAME=IMAGE, and not "base"`,
          {
            hint: 'such as python=python:3.13-slim,node=node:24; the image of "base" is CAY_KUBERNETES_BASE_IMAGE',
          },
        );
      }
      return [name, image];
    }),
  );
}

function reachIn(read: Read): Reach {
  const reach = read('REACH') ?? 'exec';
  const known = REACHES.find((each) => each === reach);
  if (known === undefined) {
    throw new CayError(
      'invalid_argument',
      `"CAY_KUBERNETES_REACH" is "${reach}": must be one of ${REACHES.join(', ')}`,
    );
  }
  const port = read('DIRECT_PORT') ?? String(DIRECT_PORT);
  if (!/^\d{4,5}$/.test(port) || Number(port) < 1024 || Number(port) > 65_535) {
    throw new CayError(
      'invalid_argument',
      `"CAY_KUBERNETES_DIRECT_PORT" is "${port}": must be a port from 1024 to 65535`,
    );
  }
  return { reach: known, directPort: Number(port) };
}

/** Whom the network of sandboxes lets in. */
function serverIn(read: Read, { reach, directPort: port }: Reach): TenancySettings['direct'] {
  if (reach === 'exec') return undefined;
  const namespace = read('SERVER_NAMESPACE');
  if (namespace === undefined) {
    throw new CayError(
      'failed_precondition',
      'Cannot let the server alone reach the guests directly: "CAY_KUBERNETES_SERVER_NAMESPACE" does not say which namespace it runs in',
      { hint: 'Name it there; or leave the NetworkPolicy to others with CAY_KUBERNETES_TENANCY=unmanaged' },
    );
  }
  const text = read('SERVER_LABELS');
  if (text === undefined) return { port, namespace, labels: SERVER_LABELS };
  const pairs = text.split(',');
  if (!pairs.every((pair) => LABEL.test(pair))) {
    throw new CayError(
      'invalid_argument',
      `"CAY_KUBERNETES_SERVER_LABELS" is "${text}": must be labels such as app=cay,tier=server`,
    );
  }
  return {
    port,
    namespace,
    labels: Object.fromEntries(pairs.map((pair) => pair.split('=') as [string, string])),
  };
}

/** The limit of a sandbox that has none, which is never more than the most that one may have. */
function diskIn(read: Read): number | undefined {
  const bytes = (name: string) => {
    const amount = read(name);
    return amount === undefined ? undefined : diskBytesOf(amount, `CAY_KUBERNETES_${name}`);
  };
  const [usual, most] = [bytes('DISK'), bytes('MAX_DISK')];
  return most === undefined ? usual : Math.min(usual ?? DEFAULT_DISK_BYTES, most);
}

function tenancyIn(read: Read, reach: Reach, diskBytes: number | undefined): TenancySettings | undefined {
  const mode = read('TENANCY') ?? 'projects';
  if (mode === 'unmanaged') return undefined;
  if (mode !== 'projects' && mode !== 'installation') {
    throw new CayError(
      'invalid_argument',
      `"CAY_KUBERNETES_TENANCY" is "${mode}": must be one of projects, installation, unmanaged`,
    );
  }
  const pods = read('QUOTA_PODS') ?? String(DEFAULT_PODS);
  if (!/^\d{1,9}$/.test(pods))
    throw new CayError(
      'invalid_argument',
      `"CAY_KUBERNETES_QUOTA_PODS" is "${pods}": must be a whole number`,
    );
  const quantity = (name: string) => {
    const amount = read(name);
    if (amount === undefined || QUANTITY.test(amount)) return amount;
    throw new CayError(
      'invalid_argument',
      `"CAY_KUBERNETES_${name}" is "${amount}": must be an amount such as 16, 500m or 64Gi`,
    );
  };
  const disk = (name: string) => {
    const amount = read(name);
    if (amount !== undefined) diskBytesOf(amount, `CAY_KUBERNETES_${name}`);
    return amount;
  };
  const direct = serverIn(read, reach);
  return {
    perProject: mode === 'projects',
    ...(direct && { direct }),
    pods: Number(pods),
    cpu: quantity('QUOTA_CPU'),
    memory: quantity('QUOTA_MEMORY'),
    maxCpu: quantity('MAX_CPU'),
    maxMemory: quantity('MAX_MEMORY'),
    disk: disk('QUOTA_DISK'),
    maxDisk: disk('MAX_DISK'),
    ...(diskBytes !== undefined && { diskBytes }),
  };
}
