/** What an installation in a cluster consists of, beside what the server itself keeps there. */
import type { Declared } from '../../server/src/backends/kubernetes/client/apply.ts';
import { neededRights } from '../../server/src/backends/kubernetes/tenancy/declarations.ts';
import {
  POOL_RIGHTS,
  RIGHTS as SANDBOX_RIGHTS,
} from '../../server/src/backends/kubernetes/agent-sandbox/needs.ts';
import { RIGHTS as JOB_RIGHTS } from '../../server/src/backends/kubernetes/job/needs.ts';
import { SERVER_LABELS } from '../../server/src/backends/kubernetes/client/names.ts';
import { rbacObjects } from '../../server/src/backends/kubernetes/tenancy/rbac.ts';
import { tenancyObjects } from '../../server/src/backends/kubernetes/tenancy/tenancy.ts';
import { secretSettings, serverEnv, type Installation } from './values.ts';

/**
 * What the server needs in a namespace of sandboxes, by what they are made of; of agent-sandbox with all that
 * its settings can ask for.
 */
const RIGHTS = {
  'kubernetes-job': JOB_RIGHTS,
  'agent-sandbox': [...SANDBOX_RIGHTS, ...POOL_RIGHTS],
};
export type ClusterBackend = keyof typeof RIGHTS;

const NAME = 'cay';
const PORT = 7070;
const USER = 1000;

export function installationObjects(
  options: Installation,
  rightsOf: ClusterBackend = 'kubernetes-job',
): Declared[] {
  const { namespace, sandboxNamespace, installation } = options;
  const labels = SERVER_LABELS;
  const metadata = { name: NAME, namespace, labels };
  const tenancy = { pods: 0, perProject: true };
  // The bounds and the network rule are kept by the server, and so are the namespaces of projects.
  const [sandboxes] = tenancyObjects({ namespace: sandboxNamespace, installation, tenancy });
  return [
    sandboxes!,
    ...rbacObjects({
      installation,
      namespace: sandboxNamespace,
      rights: neededRights(RIGHTS[rightsOf], { tenancy, installation }),
      account: { name: NAME, namespace },
      perProject: true,
    }),
    {
      apiVersion: 'v1',
      kind: 'PersistentVolumeClaim',
      metadata,
      spec: { accessModes: ['ReadWriteOnce'], resources: { requests: { storage: options.storage } } },
    },
    {
      apiVersion: 'v1',
      kind: 'Service',
      metadata,
      spec: { selector: labels, ports: [{ name: 'http', port: PORT, targetPort: 'http' }] },
    },
    {
      apiVersion: 'networking.k8s.io/v1',
      kind: 'NetworkPolicy',
      metadata,
      // Out it has to reach the API server, whose address is not known here, and webhooks.
      spec: {
        podSelector: { matchLabels: labels },
        policyTypes: ['Ingress', 'Egress'],
        ingress: [{ ports: [{ port: 'http', protocol: 'TCP' }] }],
        egress: [{}],
      },
    },
    {
      apiVersion: 'apps/v1',
      kind: 'Deployment',
      metadata,
      spec: {
        replicas: 1,
        // Two servers cannot have one set of records. Sandboxes and their commands go on meanwhile.
        strategy: { type: 'Recreate' },
        selector: { matchLabels: labels },
        template: { metadata: { labels }, spec: serverPod(options) },
      },
    },
  ];
}

/** As Pod Security `restricted` demands. */
function serverPod(options: Installation): object {
  const probe = (path: string) => ({ httpGet: { path, port: 'http' }, periodSeconds: 5, timeoutSeconds: 3 });
  return {
    serviceAccountName: NAME,
    terminationGracePeriodSeconds: 40,
    securityContext: {
      runAsNonRoot: true,
      runAsUser: USER,
      runAsGroup: USER,
      fsGroup: USER,
      seccompProfile: { type: 'RuntimeDefault' },
    },
    containers: [
      {
        name: 'server',
        image: options.serverImage,
        imagePullPolicy: options.pullPolicy,
        // Without TLS: that is for whatever stands before the Service.
        args: ['up', '--listen', `0.0.0.0:${PORT}`, '--insecure'],
        env: [
          ...Object.entries(serverEnv(options)).map(([name, value]) => ({ name, value })),
          ...secretSettings().map((name) => ({
            name,
            valueFrom: { secretKeyRef: { name: NAME, key: name, optional: true } },
          })),
        ],
        ports: [{ name: 'http', containerPort: PORT }],
        startupProbe: { ...probe('/healthz'), failureThreshold: 24 },
        livenessProbe: { ...probe('/healthz'), failureThreshold: 6 },
        readinessProbe: probe('/readyz'),
        securityContext: {
          allowPrivilegeEscalation: false,
          readOnlyRootFilesystem: true,
          capabilities: { drop: ['ALL'] },
        },
        resources: {
          requests: { cpu: '100m', memory: '256Mi', 'ephemeral-storage': '64Mi' },
          limits: { memory: '1Gi', 'ephemeral-storage': '1Gi' },
        },
        volumeMounts: [
          { name: 'data', mountPath: '/data' },
          { name: 'tmp', mountPath: '/tmp' },
        ],
      },
    ],
    volumes: [
      { name: 'data', persistentVolumeClaim: { claimName: NAME } },
      { name: 'tmp', emptyDir: { sizeLimit: '256Mi' } },
    ],
  };
}
