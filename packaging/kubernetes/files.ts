/** The manifests and the chart, both from one list of objects. */
import { readFileSync } from 'node:fs';
import type { Declared } from '../../server/src/backends/kubernetes/client/apply.ts';
import { toYaml } from '../../server/src/backends/kubernetes/client/yaml.ts';
import { installationObjects, type ClusterBackend, type Installation } from './objects.ts';

const { version } = JSON.parse(
  readFileSync(new URL('../../server/package.json', import.meta.url), 'utf8'),
) as { version: string };

/** What the manifests say, and the chart's values are until somebody changes them. */
export const DEFAULTS: Installation = {
  namespace: 'cay',
  sandboxNamespace: 'cay-sandboxes',
  installation: 'cay',
  serverImage: `cay/server:${version}`,
  guestImage: `cay/guest:${version}`,
  baseImage: 'debian:stable-slim',
  templates: '',
  pullPolicy: 'IfNotPresent',
  storage: '10Gi',
  leaseSeconds: '3600',
  quotaPods: '100',
  quotaDisk: '',
  maxDisk: '',
  disk: '10Gi',
  requireNetworkPolicy: '0',
  reach: 'exec',
  backend: 'kubernetes-job',
  warmPool: '0',
  sandboxStorage: '',
  storageClass: '',
  runtimeClass: '',
  allowRuntimes: '',
  allowImages: '',
  defaultLimits: '',
  maxLimits: '',
  logLevel: 'info',
};

const COMMENTS: Record<Exclude<keyof Installation, 'namespace'>, string> = {
  sandboxNamespace:
    'the namespace whose name those of projects begin with; made by the chart, and kept when it is removed',
  installation: 'tells the objects of several servers of one cluster apart',
  serverImage: 'the image of the server, as packaging/images/build.ts writes it',
  guestImage: 'the image that the guest comes in, from the same place',
  baseImage: 'the image of the template "base"',
  templates: 'further templates, each an image, such as python=python:3.13-slim,node=node:24',
  pullPolicy: 'Always, IfNotPresent or Never',
  storage: 'how much the records of the server may take',
  leaseSeconds: 'how long sandboxes outlive a server that is gone for ever',
  quotaPods: 'how many pods of sandboxes a project may have at once',
  quotaDisk:
    'what the disk limits of the sandboxes of a project may add up to, such as 500Gi; if empty the usual limit for each pod',
  maxDisk: 'the most disk that one sandbox may have, such as 20Gi; any if empty',
  disk: 'the disk limit of a sandbox that has none; one that writes more is evicted',
  requireNetworkPolicy: 'if 1 no sandbox is started unless the cluster was seen to enforce NetworkPolicies',
  reach: 'how guests are reached: exec through the API server, or direct over the network of pods',
  backend: 'kubernetes-job, or agent-sandbox where that is installed',
  warmPool: 'with agent-sandbox: how many sandboxes run already for those who ask for the usual',
  sandboxStorage: 'with agent-sandbox: a volume for the files of each sandbox, such as 5Gi',
  storageClass: 'with agent-sandbox: of which class; the usual one if empty',
  runtimeClass:
    'the RuntimeClass of sandboxes that ask for none, such as gvisor; pods without one are then not allowed',
  allowRuntimes:
    'RuntimeClasses that may be asked for, with commas, and "default" for pods without one; all if empty',
  allowImages: 'images that may be asked for, by patterns with commas, such as python:*; all if empty',
  defaultLimits: 'what a sandbox gets that asks for nothing else, such as cpus=1,memory=1g',
  maxLimits: 'the most that one may ask for, such as cpus=4,memory=8g,timeout=24h',
  logLevel: 'debug, info, warn, error or silent',
};

const GENERATED = '# Written by "node packaging/kubernetes/generate.ts"; a test checks that it is current.\n';

/** Text of each file, by its path from here. */
export function files(): Record<string, string> {
  const restricted = { 'pod-security.kubernetes.io/enforce': 'restricted' };
  const own: Declared = {
    apiVersion: 'v1',
    kind: 'Namespace',
    metadata: { name: DEFAULTS.namespace, labels: restricted },
  };
  return {
    'manifests/cay.yaml': GENERATED + toYaml([own, ...installationObjects(DEFAULTS)]),
    'chart/Chart.yaml':
      GENERATED +
      toYaml([
        {
          apiVersion: 'v2',
          name: 'cay',
          description: 'Sandboxes for AI agents',
          type: 'application',
          version,
          appVersion: version,
        } as never,
      ]),
    'chart/values.yaml':
      GENERATED +
      Object.entries(COMMENTS)
        .map(([name, comment]) => `# ${comment}\n${name}: '${DEFAULTS[name as keyof Installation]}'\n`)
        .join(''),
    'chart/templates/cay.yaml': GENERATED + chart(),
  };
}

/** What differs with the backend is there for both, and Helm takes one. */
function chart(): string {
  const usual = chartObjects('kubernetes-job').map((object) => toYaml([object]));
  const other = chartObjects('agent-sandbox').map((object) => toYaml([object]));
  return usual
    .map((text, at) =>
      text === other[at]
        ? text
        : `{{- if eq .Values.backend "agent-sandbox" }}\n${other[at]}{{- else }}\n${text}{{- end }}\n`,
    )
    .join('---\n');
}

function chartObjects(rightsOf: ClusterBackend): Declared[] {
  const values = Object.fromEntries(Object.keys(COMMENTS).map((name) => [name, `{{ .Values.${name} }}`]));
  const objects = installationObjects(
    { ...values, namespace: '{{ .Release.Namespace }}' } as unknown as Installation,
    rightsOf,
  );
  return objects.map((object) =>
    object.kind === 'Namespace' || object.kind === 'PersistentVolumeClaim'
      ? { ...object, metadata: { ...object.metadata, annotations: { 'helm.sh/resource-policy': 'keep' } } }
      : object,
  );
}
