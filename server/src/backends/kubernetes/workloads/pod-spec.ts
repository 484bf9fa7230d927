/**
 * The pod of a sandbox. It satisfies Pod Security `restricted` and asks for more: no process in it is root or
 * can become it, it has no account at the API server, no capability, the runtime's own seccomp filter, and a
 * root filesystem that cannot be written.
 *
 * A first container puts the guest, and the accounts that the sandbox knows, into a volume, and makes the
 * directories that can be written; it needs nothing of the sandbox's image. The guest is then the first
 * process of the one other container.
 */
import type { Limits, SandboxId, SandboxSpec } from '@cay/sdk/protocol';
import { NAME_SERVER } from '../../../guest/name-server.ts';
import { USER } from '../../support/sandbox-user.ts';
import { DISK_REQUEST_BYTES, diskLimitOf, EPHEMERAL_STORAGE } from './disk.ts';
import type { Pod } from '../client/objects.ts';
import type { Runtime } from '../runtimes.ts';
import { DEFAULT_RUNTIME, imageOf, type KubernetesSettings } from '../settings.ts';
import { besideMounts, podMounts } from './pod-mounts.ts';

/** The container of the sandbox itself. */
export const CONTAINER = 'sandbox';
const MiB = 1024 * 1024;
const INSTALLER = 'guest';
/** The volume that holds all that is written. */
const FILES = 'files';

const GUEST_DIRECTORY = '/.cay';
const SOCKET_DIRECTORY = '/.cay-run';
export const GUEST_PATH = `${GUEST_DIRECTORY}/guest`;
export const SOCKET_PATH = `${SOCKET_DIRECTORY}/guest.sock`;
/**
 * Where the node mounts the termination message file of the container: every user may write it, and no limit
 * counts it. It lies in a directory that no process in the pod can enter, on a volume that none
 * there can change.
 */
const LAST_WORDS = `${GUEST_DIRECTORY}/closed/file`;
/** Where the guest lies in the image that it comes in. */
export const GUEST_IN_IMAGE = '/cay-guest';

/**
 * A pod that is being deleted is not asked twice: the guest ends what runs within this time, or the kubelet
 * does.
 */
const TERMINATION_SECONDS = 2;
/** How long pods of a node that does not answer are waited for. */
const LOST_NODE_SECONDS = 30;

interface Writable {
  path: string;
  /** Its name in the volume that holds all that is written. */
  name: string;
  mode: string;
}

export interface PodOptions {
  settings: KubernetesSettings;
  requests: { cpus: number; memoryBytes: number };
  pullPolicy: string;
  runtime: Runtime;
  /** Of a sandbox whose files come from a snapshot: further directories that can be written. */
  beside?: { readonly directories: readonly string[] };
}

/** Without an id it is a pod of a warm pool. */
export function podSpec(id: SandboxId | undefined, spec: SandboxSpec, options: PodOptions): object {
  const { settings, runtime, pullPolicy } = options;
  const writable = writableOf(spec, options.beside?.directories);
  const mounted = podMounts(spec, settings.volumes);
  // For both containers alike: the limits of a pod, which are those that hold for gVisor, are those of its
  // largest container.
  const disk = diskLimitOf(spec.limits, settings);
  const allowed = resources({ ...hardLimits(spec.limits, runtime), diskBytes: disk }, options.requests);
  const security = {
    allowPrivilegeEscalation: false,
    privileged: false,
    readOnlyRootFilesystem: true,
    capabilities: { drop: ['ALL'] },
  };
  return {
    ...(runtime.name !== DEFAULT_RUNTIME && { runtimeClassName: runtime.name }),
    ...(id !== undefined && { hostname: id.replace('_', '-') }),
    // The kubelet starts the container again in the same pod, so a guest that crashes loses no files.
    restartPolicy: 'OnFailure',
    automountServiceAccountToken: false,
    enableServiceLinks: false,
    // The guest answers for names, and asks the server.
    ...(settings.egress && { dnsPolicy: 'None', dnsConfig: { nameservers: [NAME_SERVER] } }),
    terminationGracePeriodSeconds: TERMINATION_SECONDS,
    securityContext: {
      runAsNonRoot: true,
      runAsUser: USER.uid,
      runAsGroup: USER.gid,
      seccompProfile: { type: 'RuntimeDefault' },
      ...mounted.security,
      // The guest, which is not root, listens on ports such as 53 and 443. `restricted` allows it.
      ...(settings.egress && { sysctls: [{ name: 'net.ipv4.ip_unprivileged_port_start', value: '0' }] }),
    },
    ...mounted.placement,
    tolerations: ['not-ready', 'unreachable'].map((state) => ({
      key: `node.kubernetes.io/${state}`,
      operator: 'Exists',
      effect: 'NoExecute',
      tolerationSeconds: LOST_NODE_SECONDS,
    })),
    ...(settings.pullSecrets && { imagePullSecrets: settings.pullSecrets.map((name) => ({ name })) }),
    initContainers: [
      {
        name: INSTALLER,
        image: settings.guestImage,
        imagePullPolicy: pullPolicy,
        command: [
          GUEST_IN_IMAGE,
          'install',
          '/guest',
          ...writable.map(({ name, mode }) => `${mode}:/files/${name}`),
        ],
        securityContext: security,
        resources: allowed,
        volumeMounts: [
          { name: 'guest', mountPath: '/guest' },
          { name: FILES, mountPath: '/files' },
        ],
      },
    ],
    containers: [
      {
        name: CONTAINER,
        image: imageOf(spec.template, settings),
        imagePullPolicy: pullPolicy,
        command: [GUEST_PATH, 'serve', SOCKET_PATH],
        workingDir: '/',
        terminationMessagePath: LAST_WORDS,
        securityContext: security,
        resources: allowed,
        volumeMounts: [
          { name: 'guest', mountPath: GUEST_DIRECTORY, readOnly: true },
          { name: 'guest', mountPath: '/etc/passwd', subPath: 'passwd', readOnly: true },
          { name: 'guest', mountPath: '/etc/group', subPath: 'group', readOnly: true },
          { name: 'socket', mountPath: SOCKET_DIRECTORY },
          ...writable.map(({ path, name }) => ({ name: FILES, mountPath: path, subPath: name })),
          ...mounted.volumeMounts,
        ],
      },
    ],
    volumes: [
      { name: 'guest', emptyDir: { sizeLimit: '64Mi' } },
      { name: 'socket', emptyDir: { medium: 'Memory', sizeLimit: '1Mi' } },
      { name: FILES, emptyDir: { sizeLimit: String(disk) } },
      ...mounted.volumes,
    ],
  };
}

/**
 * What can be written: everything that a program expects to be, or the least where the root was asked to be
 * read-only.
 */
function writableOf(spec: SandboxSpec, further: readonly string[] = []): Writable[] {
  const always = [
    { path: '/tmp', name: 'tmp', mode: '1777' },
    { path: '/run', name: 'run', mode: '0755' },
  ];
  if (spec.readOnlyRoot) return besideMounts(always, spec);
  const usual = [
    { path: USER.home, name: 'home', mode: '0755' },
    ...always,
    { path: '/var/tmp', name: 'var-tmp', mode: '1777' },
  ];
  const isIn = (path: string, directory: string) => path === directory || path.startsWith(`${directory}/`);
  const isOwn = spec.workdir !== '/' && !usual.some(({ path }) => isIn(spec.workdir, path));
  const known = isOwn ? [...usual, { path: spec.workdir, name: 'work', mode: '0755' }] : usual;
  const missing = further.filter((path) => !known.some((each) => isIn(path, each.path)));
  const all = [...known, ...missing.map((path, at) => ({ path, name: `more-${at}`, mode: '0755' }))];
  return besideMounts(all, spec);
}

/** The directories of a sandbox of this spec that can be written, and that its files are in. */
export function writableDirectories(spec: SandboxSpec): string[] {
  return writableOf(spec).map(({ path }) => path);
}

/** The same of a pod that there is. */
export function directoriesOf({ spec }: Pod): string[] {
  const container = spec?.containers?.find(({ name }) => name === CONTAINER);
  return (container?.volumeMounts ?? []).flatMap(({ name, mountPath }) =>
    name === FILES ? [mountPath] : [],
  );
}

/**
 * In gVisor the guest guards memory itself, because Linux would end the whole sandbox. What the cluster
 * enforces is the second line, far enough above that the guest acts first, with room for what gVisor needs.
 */
function hardLimits(limits: Limits, { gvisor }: Runtime): Limits {
  const { memoryBytes } = limits;
  if (!gvisor || memoryBytes === null) return limits;
  return { ...limits, memoryBytes: memoryBytes + Math.max(192 * MiB, Math.ceil(memoryBytes / 8)) };
}

function resources(
  { cpus, memoryBytes, diskBytes }: Pick<Limits, 'cpus' | 'memoryBytes'> & { diskBytes: number },
  requests: { cpus: number; memoryBytes: number },
): object {
  return {
    limits: {
      ...(cpus !== null && { cpu: millicores(cpus) }),
      ...(memoryBytes !== null && { memory: String(memoryBytes) }),
      [EPHEMERAL_STORAGE]: String(diskBytes),
    },
    // A request may not be larger than its limit.
    requests: {
      cpu: millicores(Math.min(requests.cpus, cpus ?? Infinity)),
      memory: String(Math.min(requests.memoryBytes, memoryBytes ?? Infinity)),
      [EPHEMERAL_STORAGE]: String(Math.min(DISK_REQUEST_BYTES, diskBytes)),
    },
  };
}

const millicores = (cpus: number) => `${Math.max(1, Math.round(cpus * 1000))}m`;
