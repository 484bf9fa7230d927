/** The values of the chart, and which settings of the server they are. */
import { readFileSync } from 'node:fs';
import { SETTINGS, type SettingName } from '../../server/src/settings.ts';

export const { version } = JSON.parse(
  readFileSync(new URL('../../server/package.json', import.meta.url), 'utf8'),
) as { version: string };

/** By the names of values, and the namespace of the server, which is Helm's to say. */
export type Installation = Record<string, string> &
  Record<
    'namespace' | 'sandboxNamespace' | 'installation' | 'serverImage' | 'pullPolicy' | 'storage',
    string
  >;

interface OfSetting {
  /** What the value is called. Default: as the setting, in the plural if it is a list. */
  value?: string;
  /** Default: that of the setting, or none. */
  default?: string;
  /** Default: what the help says. */
  comment?: string;
}

/** Settings that are values. What is empty is not set. */
const SETTING_VALUES: Partial<Record<SettingName, OfSetting>> = {
  kubernetesNamespace: {
    value: 'sandboxNamespace',
    default: 'cay-sandboxes',
    comment:
      'the namespace whose name those of projects begin with; made by the chart, and kept when it is removed',
  },
  kubernetesInstallation: { value: 'installation', default: 'cay' },
  kubernetesGuestImage: {
    value: 'guestImage',
    default: `cay/guest:${version}`,
    comment: 'the image that the guest comes in, as packaging/images/build.ts writes it',
  },
  kubernetesBaseImage: { value: 'baseImage' },
  kubernetesTemplates: { value: 'templates' },
  kubernetesPullPolicy: {
    value: 'pullPolicy',
    default: 'IfNotPresent',
    comment: 'Always, IfNotPresent or Never',
  },
  kubernetesPullSecrets: { value: 'pullSecrets' },
  kubernetesLeaseSeconds: { value: 'leaseSeconds', default: '3600' },
  kubernetesQuotaPods: { value: 'quotaPods' },
  kubernetesQuotaCpu: { value: 'quotaCpu' },
  kubernetesQuotaMemory: { value: 'quotaMemory' },
  kubernetesQuotaDisk: { value: 'quotaDisk' },
  kubernetesMaxCpu: { value: 'maxCpu' },
  kubernetesMaxMemory: { value: 'maxMemory' },
  kubernetesMaxDisk: { value: 'maxDisk' },
  kubernetesQuotaVolumes: { value: 'quotaVolumes' },
  kubernetesQuotaStorage: { value: 'quotaStorage' },
  kubernetesVolumeClass: { value: 'volumeClass' },
  kubernetesVolumeSize: { value: 'volumeSize', default: '10Gi' },
  kubernetesVolumeSizeEnforced: {
    value: 'volumeSizeEnforced',
    default: '0',
    comment:
      'if 1 storage of that class refuses what is beyond the size of a volume, and clients may give one',
  },
  kubernetesVolumeAccess: { value: 'volumeAccess' },
  kubernetesDisk: { value: 'disk', default: '10Gi' },
  kubernetesRequireNetworkPolicy: {
    value: 'requireNetworkPolicy',
    default: '0',
    comment: 'if 1 no sandbox is started unless the cluster was seen to enforce NetworkPolicies',
  },
  kubernetesReach: { value: 'reach' },
  backend: { default: 'kubernetes-job', comment: 'kubernetes-job, or agent-sandbox where that is installed' },
  kubernetesWarmPool: { value: 'warmPool', default: '0' },
  kubernetesStorage: { value: 'sandboxStorage' },
  kubernetesStorageClass: { value: 'storageClass' },
  kubernetesRuntimeClass: { value: 'runtimeClass' },
  allowRuntime: {
    value: 'allowRuntimes',
    comment:
      'RuntimeClasses that may be asked for, with commas, and "default" for pods without one; all if empty',
  },
  allowImage: { value: 'allowImages' },
  defaultLimit: { value: 'defaultLimits' },
  maxLimit: { value: 'maxLimits' },
  network: {
    comment: 'what sandboxes reach that ask for nothing else: none, packages, public, ask, or JSON',
  },
  maxNetwork: {},
  defaultQuota: { value: 'defaultQuotas' },
  maxQuota: { value: 'maxQuotas' },
  publicUrl: {},
  previewDomain: { value: 'previewDomains' },
  corsOrigin: { value: 'corsOrigins' },
  openMetrics: { default: '0', comment: 'if 1 the metrics are served without a key' },
  http2: {},
  previewConnections: {},
  addressConnections: {},
  maxCalls: {},
  maxStreams: {},
  keepEvents: {},
  keepEventDays: {},
  store: { value: 'archiveStore' },
  allowBucketEndpoint: { value: 'allowBucketEndpoints' },
  webhookPrivate: { default: '0', comment: 'if 1 webhooks may reach private networks' },
  logLevel: {},
};

/** Settings that the chart decides itself, or that a server in a cluster has no use for. */
export const NO_VALUES: Partial<Record<SettingName, string>> = {
  data: 'where the volume is mounted',
  listen: 'an argument, because it belongs to the Service',
  insecure: 'TLS is for whatever stands before the Service',
  tlsCert: 'the same',
  tlsKey: 'the same',
  kubernetesServerNamespace: "the release's namespace",
  kubernetesServerLabels: 'the labels of the Deployment',
  kubernetesContext: 'the server uses its own account',
  kubernetesDirectPort: 'the usual one',
  kubernetesTenancy: 'the chart gives the rights for namespaces of projects',
  platformRules: 'one backend',
  runtime: 'RuntimeClasses are chosen by runtimeClass',
  runsc: 'of the local backend',
  registryConfig: 'of the local backend',
  registryMirror: 'of the local backend',
  allowRegistry: 'of the local backend',
  insecureRegistry: 'of the local backend',
  imageStore: 'of the local backend',
  maxImageSize: 'of the local backend',
  pool: 'of the local backend',
  storage: 'of the local backend',
  probe: 'of other backends',
  dockerHost: 'of the Docker backend',
  dockerImage: 'of the Docker backend',
  allowProcess: 'of the local backend',
  allowHostPath: 'of the local backend',
  publishAddress: 'a Service leads to ports of a pod',
  publishPorts: 'the same',
  memoryOvercommit: 'of the local backend',
  warnAt: 'of the local backend',
  criticalAt: 'of the local backend',
  diskOvercommit: 'of the local backend',
  memoryReserve: 'of the local backend',
  diskReserve: 'of the local backend',
  reclaim: 'of the local backend',
  storeCredentials: 'a Secret has the credentials themselves',
  restore: 'an act, and no setting',
  secretKeyCommand: 'a Secret has the key itself',
};

interface Value {
  comment: string;
  default: string;
  /** The variable of the server that it is. Absent: it says something about the objects. */
  variable?: string;
}

/** In the order of the file. */
export const VALUES: Readonly<Record<string, Value>> = {
  serverImage: {
    comment: 'the image of the server, as packaging/images/build.ts writes it',
    default: `cay/server:${version}`,
  },
  storage: { comment: 'how much the records of the server may take', default: '10Gi' },
  ...Object.fromEntries(
    (Object.entries(SETTING_VALUES) as [SettingName, OfSetting][]).map(([name, given]) => {
      const { help, default: usual, usually, env } = SETTINGS.find((setting) => setting.name === name)!;
      const preset = given.default ?? usual ?? '';
      const ifEmpty = preset === '' && usually !== undefined ? `; if empty ${usually}` : '';
      const comment = given.comment ?? `${help}${ifEmpty}`;
      return [given.value ?? name, { comment, default: preset, variable: env! }];
    }),
  ),
};

/** The values of the manifests, and the defaults of the chart's values. */
export const DEFAULTS = Object.fromEntries([
  ['namespace', 'cay'],
  ...Object.entries(VALUES).map(([name, value]) => [name, value.default]),
]) as Installation;

/** The variables of the server. */
export function serverEnv(options: Installation): Record<string, string> {
  return {
    CAY_DATA: '/data',
    ...Object.fromEntries(
      Object.entries(VALUES).flatMap(([name, { variable }]) =>
        variable === undefined ? [] : [[variable, options[name]!]],
      ),
    ),
    CAY_KUBERNETES_SERVER_NAMESPACE: options.namespace,
  };
}

/** Variables that come from the Secret "cay" of the server's namespace, if there is one. */
export function secretSettings(): string[] {
  return SETTINGS.flatMap(({ name, secret, group, env }) =>
    secret && group !== 'tracing' && NO_VALUES[name] === undefined ? [env!] : [],
  );
}

/** Settings that are neither values nor left out for a reason. There are none, and a test keeps it so. */
export function forgottenSettings(): string[] {
  return SETTINGS.filter(
    ({ name, secret, group }) =>
      group !== 'tracing' && !secret && SETTING_VALUES[name] === undefined && NO_VALUES[name] === undefined,
  ).map(({ name }) => name);
}
