import { CayError } from '@cay/sdk/protocol';
import { DEFAULT_DISK_BYTES, diskBytesOf } from './workloads/disk.ts';
import { SERVER_LABELS } from './client/names.ts';
import type { KubernetesSettings } from './settings.ts';
import type { TenancySettings } from './tenancy/tenancy.ts';
import { quantityBytes } from './volumes/claim.ts';
import { DEFAULT_VOLUME_BYTES, type VolumeAccess, type VolumeSettings } from './volumes/volume-settings.ts';

/** The default namespace of sandboxes, which the server makes. */
const OUR_NAMESPACE = 'cay-sandboxes';
const DEFAULT_QUOTA_VOLUMES = 100;

/** The operator's settings of a cluster, each of them valid by itself. */
export interface ClusterSettings {
  guestImage?: string;
  baseImage: string;
  templates?: Record<string, string>;
  namespace?: string;
  context?: string;
  installation?: string;
  tenancy: 'projects' | 'installation' | 'unmanaged';
  runtimeClass?: string;
  pullPolicy?: 'Always' | 'IfNotPresent' | 'Never';
  pullSecrets?: string[];
  leaseSeconds?: number;
  quotaPods: number;
  /** Amounts as Kubernetes writes them. */
  quotaCpu?: string;
  quotaMemory?: string;
  quotaDisk?: string;
  maxCpu?: string;
  maxMemory?: string;
  maxDisk?: string;
  disk?: string;
  quotaVolumes?: number;
  quotaStorage?: string;
  volumeClass?: string;
  volumeSize?: string;
  volumeSizeEnforced?: boolean;
  volumeAccess?: VolumeAccess;
  requireNetworkPolicy?: boolean;
  reach: 'exec' | 'direct';
  directPort: number;
  serverNamespace?: string;
  serverLabels?: Record<string, string>;
  warmPool?: number;
  storage?: string;
  storageClass?: string;
}

interface Place {
  /** Of a server whose settings name none. */
  installation: string;
  /** Where the server listens, if that is known. */
  serverPort?: number;
}

/** Rejects `failed_precondition` if a setting is missing that others need. */
export function kubernetesSettings(cluster: ClusterSettings, place: Place): KubernetesSettings {
  const { guestImage, leaseSeconds, reach, directPort, pullSecrets } = cluster;
  if (guestImage === undefined) {
    throw new CayError(
      'failed_precondition',
      'Cannot use Kubernetes: CAY_KUBERNETES_GUEST_IMAGE does not say which image the guest comes in',
      {
        details: { setting: 'kubernetesGuestImage' },
        hint: 'put the guest into an image that the cluster can pull, and name it there',
      },
    );
  }
  const diskBytes = usualDisk(cluster);
  const tenancy = tenancyOf(cluster, diskBytes);
  return {
    guestImage,
    baseImage: cluster.baseImage,
    templates: cluster.templates ?? {},
    namespace: cluster.namespace ?? (tenancy && OUR_NAMESPACE),
    ...(tenancy && { tenancy }),
    reach,
    directPort,
    probeNetwork: true,
    ...(cluster.requireNetworkPolicy && { requireNetworkPolicy: true }),
    ...(place.serverPort && { serverPort: place.serverPort }),
    context: cluster.context,
    installation: cluster.installation ?? place.installation,
    runtimeClass: cluster.runtimeClass,
    pullPolicy: cluster.pullPolicy,
    pullSecrets,
    ...(leaseSeconds !== undefined && { leaseSeconds }),
    ...(diskBytes !== undefined && { diskBytes }),
    volumes: volumesOf(cluster),
  };
}

/** Whom the network of sandboxes lets in. */
function serverOf(cluster: ClusterSettings): TenancySettings['direct'] {
  const { reach, directPort: port, serverNamespace: namespace, serverLabels } = cluster;
  if (reach === 'exec') return undefined;
  if (namespace === undefined) {
    throw new CayError(
      'failed_precondition',
      'Cannot let the server alone reach the guests directly: CAY_KUBERNETES_SERVER_NAMESPACE does not say which namespace it runs in',
      {
        details: { setting: 'kubernetesServerNamespace' },
        hint: 'name it there; or leave the NetworkPolicy to others with CAY_KUBERNETES_TENANCY=unmanaged',
      },
    );
  }
  return { port, namespace, labels: serverLabels ?? SERVER_LABELS };
}

/** The limit of a sandbox that has none, which is never more than the most that one may have. */
function usualDisk({ disk, maxDisk }: ClusterSettings): number | undefined {
  const usual = disk === undefined ? undefined : diskBytesOf(disk);
  return maxDisk === undefined ? usual : Math.min(usual ?? DEFAULT_DISK_BYTES, diskBytesOf(maxDisk));
}

function volumesOf(cluster: ClusterSettings): VolumeSettings {
  const { volumeClass, volumeSize, volumeSizeEnforced, volumeAccess } = cluster;
  return {
    ...(volumeClass !== undefined && { storageClass: volumeClass }),
    ...(volumeSize !== undefined && { sizeBytes: diskBytesOf(volumeSize) }),
    ...(volumeSizeEnforced && { enforced: true }),
    ...(volumeAccess !== undefined && { access: volumeAccess }),
  };
}

/** Named volumes, and where each sandbox has a volume for its files those too. */
function claimsOf(cluster: ClusterSettings): Pick<TenancySettings, 'claims' | 'storage'> {
  const { quotaPods, quotaVolumes = DEFAULT_QUOTA_VOLUMES, quotaStorage, storage } = cluster;
  const { sizeBytes = DEFAULT_VOLUME_BYTES } = volumesOf(cluster);
  const own = storage === undefined ? 0 : quotaPods;
  const bytes = quotaVolumes * sizeBytes + own * (quantityBytes(storage) ?? 0);
  return { claims: quotaVolumes + own, storage: quotaStorage ?? String(bytes) };
}

function tenancyOf(cluster: ClusterSettings, diskBytes: number | undefined): TenancySettings | undefined {
  if (cluster.tenancy === 'unmanaged') return undefined;
  const direct = serverOf(cluster);
  return {
    perProject: cluster.tenancy === 'projects',
    ...(direct && { direct }),
    pods: cluster.quotaPods,
    cpu: cluster.quotaCpu,
    memory: cluster.quotaMemory,
    maxCpu: cluster.maxCpu,
    maxMemory: cluster.maxMemory,
    disk: cluster.quotaDisk,
    maxDisk: cluster.maxDisk,
    ...claimsOf(cluster),
    ...(diskBytes !== undefined && { diskBytes }),
  };
}
