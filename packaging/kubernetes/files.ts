/** The manifests and the chart, both from one list of objects. */
import type { Declared } from '../../server/src/backends/kubernetes/client/apply.ts';
import { toYaml } from '../../server/src/backends/kubernetes/client/yaml.ts';
import { installationObjects, type ClusterBackend } from './objects.ts';
import { DEFAULTS, VALUES, version, type Installation } from './values.ts';

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
      Object.entries(VALUES)
        .map(([name, { comment }]) => `# ${comment}\n${name}: '${DEFAULTS[name]}'\n`)
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
  const values = Object.fromEntries(Object.keys(VALUES).map((name) => [name, `{{ .Values.${name} }}`]));
  const objects = installationObjects(
    { ...values, namespace: '{{ .Release.Namespace }}' } as Record<string, string> as Installation,
    rightsOf,
  );
  return objects.map((object) =>
    object.kind === 'Namespace' || object.kind === 'PersistentVolumeClaim'
      ? { ...object, metadata: { ...object.metadata, annotations: { 'helm.sh/resource-policy': 'keep' } } }
      : object,
  );
}
