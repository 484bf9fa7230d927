/**
 * Every setting of the server, in one schema.
 *
 * From it come the flags of `cay up`, the variables of the environment, their help, the reference
 * (`docs/reference/settings.md`), what a server in the background is started with, and the environment of the
 * server in the chart. Adding a setting is adding it here, and using `settings.<name>` where it matters:
 *
 *     maxCalls: setting(count, { group: 'traffic', value: 'number', help: '…', default: '256' }),
 *
 * is `--max-calls <number>`, `CAY_MAX_CALLS` and `settings.maxCalls`. A flag beats a variable, and an empty
 * variable is none. `resolve-settings.ts` reads both.
 */
import { z } from 'zod';
import { parsePlatformRules } from './backends/composite/platform-rules.ts';
import { diskBytesOf } from './backends/kubernetes/workloads/disk.ts';
import { parseLabels, parseTemplates } from './backends/kubernetes/named-values.ts';
import { UnitError } from './lib/units.ts';
import { LIMITS, namesIn } from './settings/amounts.ts';
import {
  anyText,
  checked,
  choice,
  count,
  countBetween,
  databaseUrl,
  gathered,
  hostPort,
  list,
  listOf,
  onOff,
  parsed,
  quantity,
} from './settings/kinds.ts';
import { clusterVolumeSettings } from './settings/cluster-volume-settings.ts';
import { imageSettings } from './settings/image-settings.ts';
import { defaultsIn, maximaIn } from './settings/limit-settings.ts';
import { machineSettings } from './settings/machine-settings.ts';
import { networkSettings } from './settings/network-settings.ts';
import { publishAddressesIn, publishPortsIn } from './settings/publish-settings.ts';
import { quotaSettings } from './settings/quota-settings.ts';
import { LISTED, describe, setting, type Described } from './settings/setting.ts';
import { storageSettings } from './settings/storage-settings.ts';
import { tracingSettings } from './settings/tracing-settings.ts';

export const BACKEND_NAMES = ['local', 'docker', 'kubernetes-job', 'agent-sandbox', 'memory'] as const;
export type BackendName = (typeof BACKEND_NAMES)[number];

const LOG_LEVELS = ['debug', 'info', 'warn', 'error', 'silent'] as const;
const PULL_POLICIES = ['Always', 'IfNotPresent', 'Never'] as const;
const HOST_PATH = /^\/[^,]{1,1024}$/;
const IMAGE_PATTERN = /^[A-Za-z0-9._/:@*-]{1,512}$/;
const RUNTIME = /^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$/;
const MAX_PROBE_SECONDS = 99_999;
const MIN_LEASE_SECONDS = 60;
const MAX_WARM_POOL = 1000;

const server = {
  data: setting(anyText, {
    group: 'server',
    value: 'dir',
    help: 'data directory of the server on this machine',
    usually: '/var/lib/cay for root, else ~/.local/share/cay',
    path: true,
  }),
  listen: setting(hostPort, {
    group: 'server',
    value: 'host:port',
    help: 'where to listen',
    default: '127.0.0.1:7070',
  }),
  tlsCert: setting(anyText, {
    group: 'server',
    value: 'file',
    help: 'certificate in PEM form; needed to listen beyond this machine',
    path: true,
  }),
  tlsKey: setting(anyText, { group: 'server', value: 'file', help: 'its private key', path: true }),
  insecure: setting(onOff, { group: 'server', help: 'listen beyond this machine without TLS' }),
  publicUrl: setting(anyText, {
    group: 'server',
    value: 'url',
    help: 'how clients reach the server, if not by the address it listens on',
  }),
  previewDomain: setting(list, {
    group: 'server',
    value: 'domain',
    help: `a domain whose subdomains are previews; ${LISTED}`,
    repeat: true,
  }),
  corsOrigin: setting(list, {
    group: 'server',
    value: 'origin',
    help: `an origin whose pages may call the API; ${LISTED}`,
    repeat: true,
  }),
  openMetrics: setting(onOff, { group: 'server', help: 'serve the metrics without a key' }),
  logLevel: setting(choice(...LOG_LEVELS), {
    group: 'server',
    value: 'level',
    help: 'how much is logged',
    choices: LOG_LEVELS,
    default: 'info',
  }),
};

const backends = {
  backend: setting(parsed(backendsIn), {
    group: 'backends',
    value: 'names',
    help: `what makes the sandboxes: ${BACKEND_NAMES.join(', ')}, or several with commas between them`,
    default: 'local',
  }),
  platformRules: setting(parsed(parsePlatformRules), {
    group: 'backends',
    value: 'rules',
    help: 'of several backends, which labels choose which: LABEL=VALUE:NAME, with commas between rules',
  }),
  runtime: setting(anyText, {
    group: 'backends',
    value: 'name',
    help: 'the isolation of sandboxes that ask for none',
    usually: 'the strongest that works',
  }),
  runsc: setting(anyText, {
    group: 'backends',
    value: 'file',
    help: "gVisor's program",
    usually: 'the newest that is found',
    path: true,
  }),
  pool: setting(count, { group: 'backends', value: 'number', help: 'sandboxes kept ready', default: '2' }),
  storage: setting(anyText, {
    group: 'backends',
    value: 'driver',
    help: 'how files are kept',
    usually: 'by what the disk is',
  }),
  probe: setting(parsed(probeIn), {
    group: 'backends',
    value: 'seconds',
    help: 'how long after the start the server begins to try what works, by making sandboxes; "off" is never',
    default: '10',
  }),
};

const docker = {
  dockerHost: setting(anyText, {
    group: 'docker',
    value: 'address',
    help: 'the Docker engine, as unix:///path or tcp://name:port',
    fallback: 'DOCKER_HOST',
    usually: 'DOCKER_HOST, or unix:///var/run/docker.sock',
  }),
  dockerImage: setting(anyText, {
    group: 'docker',
    value: 'name',
    help: 'what the template "base" is on Docker',
  }),
};

const kubernetes = {
  kubernetesGuestImage: setting(anyText, {
    group: 'kubernetes',
    value: 'image',
    help: 'the image that the guest comes in; needed',
  }),
  kubernetesBaseImage: setting(anyText, {
    group: 'kubernetes',
    value: 'image',
    help: 'the image of the template "base"',
    default: 'debian:stable-slim',
  }),
  kubernetesTemplates: setting(parsed(parseTemplates), {
    group: 'kubernetes',
    value: 'templates',
    help: 'further templates, each an image, such as python=python:3.13-slim,node=node:24',
  }),
  kubernetesNamespace: setting(anyText, {
    group: 'kubernetes',
    value: 'name',
    help: 'the namespace of sandboxes, whose name those of projects begin with',
    usually: 'cay-sandboxes',
  }),
  kubernetesContext: setting(anyText, {
    group: 'kubernetes',
    value: 'name',
    help: 'which context of KUBECONFIG',
    usually: 'its current one',
  }),
  kubernetesInstallation: setting(anyText, {
    group: 'kubernetes',
    value: 'name',
    help: 'tells the objects of several servers of one cluster apart',
    usually: 'by the data directory',
  }),
  kubernetesTenancy: setting(choice('projects', 'installation', 'unmanaged'), {
    group: 'kubernetes',
    value: 'mode',
    help: 'whether each project has a namespace that the server makes, all share one, or the operator makes it',
    choices: ['projects', 'installation', 'unmanaged'],
    default: 'projects',
  }),
  kubernetesRuntimeClass: setting(anyText, {
    group: 'kubernetes',
    value: 'name',
    help: 'the RuntimeClass of sandboxes that ask for none, such as gvisor; pods without one are then not allowed',
  }),
  kubernetesPullPolicy: setting(choice(...PULL_POLICIES), {
    group: 'kubernetes',
    value: 'policy',
    help: 'when images are pulled',
    choices: PULL_POLICIES,
    usually: 'IfNotPresent',
  }),
  kubernetesPullSecrets: setting(list, {
    group: 'kubernetes',
    value: 'names',
    help: `the secrets to pull images with; ${LISTED}`,
    repeat: true,
  }),
  kubernetesLeaseSeconds: setting(
    countBetween(MIN_LEASE_SECONDS, 1e12, `must be a whole number of ${MIN_LEASE_SECONDS} or more`),
    {
      group: 'kubernetes',
      value: 'seconds',
      help: 'how long sandboxes outlive a server that is gone for ever',
      usually: '3600',
    },
  ),
  kubernetesQuotaPods: setting(count, {
    group: 'kubernetes',
    value: 'number',
    help: 'how many pods of sandboxes a project may have at once',
    default: '100',
  }),
  kubernetesQuotaCpu: setting(quantity, {
    group: 'kubernetes',
    value: 'amount',
    help: 'what the CPU limits of the sandboxes of a project may add up to',
  }),
  kubernetesQuotaMemory: setting(quantity, {
    group: 'kubernetes',
    value: 'amount',
    help: 'the same of their memory limits',
  }),
  kubernetesQuotaDisk: setting(checked(diskBytesOf), {
    group: 'kubernetes',
    value: 'amount',
    help: 'what the disk limits of the sandboxes of a project may add up to, such as 500Gi',
    usually: 'the usual limit for each pod',
  }),
  kubernetesMaxCpu: setting(quantity, {
    group: 'kubernetes',
    value: 'amount',
    help: 'the most CPU that one sandbox may have',
  }),
  kubernetesMaxMemory: setting(quantity, {
    group: 'kubernetes',
    value: 'amount',
    help: 'the most memory that one sandbox may have',
  }),
  kubernetesMaxDisk: setting(checked(diskBytesOf), {
    group: 'kubernetes',
    value: 'amount',
    help: 'the most disk that one sandbox may have, such as 20Gi',
  }),
  kubernetesDisk: setting(checked(diskBytesOf), {
    group: 'kubernetes',
    value: 'amount',
    help: 'the disk limit of a sandbox that has none; one that writes more is evicted',
    usually: '10Gi',
  }),
  kubernetesRequireNetworkPolicy: setting(onOff, {
    group: 'kubernetes',
    help: 'start no sandbox unless the cluster was seen to enforce NetworkPolicies',
  }),
  kubernetesReach: setting(choice('exec', 'direct'), {
    group: 'kubernetes',
    value: 'way',
    help: 'how guests are reached: exec through the API server, or direct over the network of pods',
    choices: ['exec', 'direct'],
    default: 'exec',
  }),
  kubernetesDirectPort: setting(countBetween(1024, 65_535, 'must be a port from 1024 to 65535'), {
    group: 'kubernetes',
    value: 'port',
    help: 'the port on which guests listen for that',
    default: '7071',
  }),
  kubernetesServerNamespace: setting(anyText, {
    group: 'kubernetes',
    value: 'name',
    help: 'the namespace of the server, whose pods may reach the guests directly',
  }),
  kubernetesServerLabels: setting(parsed(parseLabels), {
    group: 'kubernetes',
    value: 'labels',
    help: 'the labels of those pods, such as app=cay,tier=server',
  }),
  kubernetesWarmPool: setting(countBetween(0, MAX_WARM_POOL, `must be a number from 0 to ${MAX_WARM_POOL}`), {
    group: 'kubernetes',
    value: 'number',
    help: 'how many pods of a namespace run already for sandboxes that ask for the usual',
    usually: '0',
  }),
  ...clusterVolumeSettings(checked(diskBytesOf)),
  kubernetesStorage: setting(quantity, {
    group: 'kubernetes',
    value: 'amount',
    help: 'with agent-sandbox: a volume for the files of each sandbox, such as 5Gi',
  }),
  kubernetesStorageClass: setting(anyText, {
    group: 'kubernetes',
    value: 'name',
    help: 'with agent-sandbox: of which class',
    usually: "the cluster's own",
  }),
};

const policy = {
  allowRuntime: setting(listOf(RUNTIME, 'the name of a runtime'), {
    group: 'policy',
    value: 'names',
    help: `the isolations that may be asked for; ${LISTED}`,
    usually: 'all',
    repeat: true,
  }),
  allowProcess: setting(onOff, {
    group: 'policy',
    help: 'with "process" in --allow-runtime: let admins make sandboxes without isolation',
  }),
  allowImage: setting(listOf(IMAGE_PATTERN, 'a pattern of image names'), {
    group: 'policy',
    value: 'patterns',
    help: `the images that may be asked for, such as python:*; ${LISTED}`,
    usually: 'all',
    repeat: true,
  }),
  allowHostPath: setting(listOf(HOST_PATH, 'an absolute path'), {
    group: 'policy',
    value: 'paths',
    help: `directories of the host that sandboxes may mount read-only, or with :rw after them to write; ${LISTED}`,
    usually: 'none',
    repeat: true,
  }),
  publishAddress: setting(gathered(publishAddressesIn), {
    group: 'policy',
    value: 'addresses',
    help: `the addresses of this machine on which ports of sandboxes may be published, or "none"; the first is the usual one; ${LISTED}`,
    usually: '127.0.0.1',
    repeat: true,
  }),
  publishPorts: setting(parsed(publishPortsIn), {
    group: 'policy',
    value: 'range',
    help: 'the ports of this machine on which ports of sandboxes may be published',
    usually: '1024-65535',
  }),
  defaultLimit: setting(gathered(defaultsIn), {
    group: 'policy',
    value: 'limits',
    help: `what a sandbox gets that asks for nothing else, as NAME=VALUE of ${namesIn(LIMITS)}; ${LISTED}`,
    repeat: true,
  }),
  maxLimit: setting(gathered(maximaIn), {
    group: 'policy',
    value: 'limits',
    help: `the most that one may ask for, of the same; "none" is any amount; ${LISTED}`,
    repeat: true,
  }),
};

const traffic = {
  http2: setting(choice('on', 'off'), {
    group: 'traffic',
    value: 'on|off',
    help: 'whether HTTP/2 is spoken beside HTTP/1',
    choices: ['on', 'off'],
    default: 'on',
  }),
  previewConnections: setting(count, {
    group: 'traffic',
    value: 'number',
    help: 'connections that visitors may hold open into one sandbox',
    default: '1000',
  }),
  addressConnections: setting(count, {
    group: 'traffic',
    value: 'number',
    help: 'connections that one address may hold open; those of this machine are not counted',
    default: '4000',
  }),
  maxCalls: setting(count, {
    group: 'traffic',
    value: 'number',
    help: 'calls that a project may have under way',
    default: '256',
  }),
  maxStreams: setting(count, {
    group: 'traffic',
    value: 'number',
    help: 'streams and waiting calls that a project may have open',
    default: '1024',
  }),
};

const events = {
  keepEvents: setting(count, {
    group: 'events',
    value: 'number',
    help: 'events kept of each project',
    default: '1000000',
  }),
  keepEventDays: setting(count, {
    group: 'events',
    value: 'days',
    help: 'forget events that are older',
  }),
  webhookPrivate: setting(onOff, {
    group: 'events',
    help: 'let webhooks reach this machine and private networks',
  }),
};

const records = {
  // Where the records are.
  database: setting(databaseUrl, {
    group: 'records',
    value: 'url',
    help: 'the PostgreSQL database that has the records; give it in the variable, where nobody else sees it',
    usually: 'a file in the data directory',
    secret: true,
  }),
  restore: setting(anyText, {
    group: 'records',
    value: 'file',
    help: 'start from a backup; there must be no records yet',
    variable: false,
    path: true,
  }),
  secretKey: setting(anyText, {
    group: 'records',
    value: 'base64',
    help: 'the key that seals secrets in the records: 32 bytes in base64',
    usually: 'a file in the data directory',
    flag: false,
    secret: true,
  }),
  secretKeyCommand: setting(anyText, {
    group: 'records',
    value: 'command',
    help: 'a command that prints that key',
    flag: false,
    secret: true,
  }),
};

export const SettingsSchema = z.object({
  ...server,
  ...backends,
  ...docker,
  ...kubernetes,
  ...imageSettings,
  ...policy,
  ...networkSettings,
  ...quotaSettings,
  ...machineSettings,
  ...traffic,
  ...events,
  ...storageSettings,
  ...records,
  ...tracingSettings,
});

export type Settings = z.infer<typeof SettingsSchema>;
export type SettingName = keyof Settings;

/** In the order of the schema. */
export const SETTINGS: readonly (Described & { name: SettingName })[] = Object.entries(
  SettingsSchema.shape,
).map(([name, schema]) => ({ ...describe(name, schema), name: name as SettingName }));

function backendsIn(text: string): BackendName[] {
  const names = text.split(',').map((name) => name.trim());
  const found = names.filter((name) => name !== '');
  const unknown = found.find((name) => !BACKEND_NAMES.some((each) => each === name));
  if (unknown !== undefined || found.length === 0)
    throw new UnitError(`unknown backend "${unknown ?? text}"; there are ${BACKEND_NAMES.join(', ')}`);
  if (new Set(found).size < found.length) throw new UnitError('each may be named once');
  return found as BackendName[];
}

/** Undefined is never. */
function probeIn(text: string): { delayMs: number } | undefined {
  if (text === 'off') return undefined;
  if (!/^\d+$/.test(text) || Number(text) > MAX_PROBE_SECONDS)
    throw new UnitError('must be "off" or a number of seconds');
  return { delayMs: Number(text) * 1000 };
}
