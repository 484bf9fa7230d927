/**
 * The OCI bundle (`config.json`) of a container: its mounts, rights and restrictions.
 *
 * Pure: the same container gives the same bundle. `BundleTraits` are the differences between runtimes.
 */
import { existsSync } from 'node:fs';
import { join } from 'node:path';
import type { Container, ContainerMount, IdMapping } from './runtime.ts';
import type { Seccomp } from './seccomp.ts';

/** Path of the guest binary inside. */
export const GUEST_PATH = '/run/cay-guest';
export const SOCKET_DIR = '/run/cay';

/** Path on the host of the root filesystem, mounted for this runtime process alone. */
export function rootMount({ bundleDir }: Pick<Container, 'bundleDir'>): string {
  return join(bundleDir, 'mount');
}

/**
 * Path on the host of the user namespace that the runtime joins, if any. A namespace made by the runtime
 * would belong to root, and the kernel would count per-user resources of all containers together, for root.
 */
export function userNamespace({ bundleDir }: Bundled, { joinsUser }: BundleTraits): string | undefined {
  return joinsUser ? join(bundleDir, 'user') : undefined;
}

/**
 * Capabilities of root in a sandbox: everything about its own files, users and processes; nothing about the
 * machine, the network or devices.
 */
export const CAPABILITIES = [
  'CAP_CHOWN',
  'CAP_DAC_OVERRIDE',
  'CAP_FOWNER',
  'CAP_FSETID',
  'CAP_KILL',
  'CAP_NET_BIND_SERVICE',
  'CAP_SETGID',
  'CAP_SETPCAP',
  'CAP_SETUID',
  'CAP_SYS_CHROOT',
] as const;

/**
 * When the machine runs out of memory, the kernel kills sandboxes before the server and other programs.
 * Within a sandbox it kills commands before the guest, which raises their score further.
 */
export const OOM_SCORE = 300;

/**
 * For the guest only, where each sandbox has a kernel of its own: a restored image has the hostname of the
 * captured one, and the guest changes it. No command has it: the guest removes it from the bounding set
 * first.
 */
const NAMING = ['CAP_SYS_ADMIN'] as const;

/**
 * For the guest only, where egress is on: with them it brings connections to itself, in the network namespace
 * of the sandbox, which has no network card. The guest drops them before it runs anything, from the bounding
 * set too. Not in gVisor, which cannot restore the memory of a sandbox that redirects.
 */
const REDIRECTING = ['CAP_NET_ADMIN'] as const;

/** Paths that reveal the machine, its disks and its other tenants. Programs work without them. */
const MASKED_PATHS = [
  '/proc/acpi',
  '/proc/asound',
  '/proc/cmdline',
  '/proc/diskstats',
  '/proc/driver',
  '/proc/fs',
  '/proc/interrupts',
  '/proc/kallsyms',
  '/proc/kcore',
  '/proc/key-users',
  '/proc/keys',
  '/proc/latency_stats',
  '/proc/mdstat',
  '/proc/modules',
  '/proc/partitions',
  '/proc/pressure',
  '/proc/sched_debug',
  '/proc/scsi',
  '/proc/swaps',
  '/proc/timer_list',
  '/proc/timer_stats',
];

const READONLY_PATHS = ['/proc/bus', '/proc/irq', '/proc/sys', '/proc/sysrq-trigger'];

/**
 * The only parts of `/sys` that a sandbox on the host's kernel sees: C libraries, Go, Java and allocators
 * read them. The rest shows disks, quotas and paths of the host and of other sandboxes.
 */
const SYS_PATHS = ['/sys/devices/system/cpu', '/sys/kernel/mm/transparent_hugepage'].filter((path) =>
  existsSync(path),
);

/** Terminals of one sandbox. The kernel has one limit for the whole machine, and this one for each mount. */
export const MAX_TERMINALS = 256;

/**
 * The kernel sums these over all sandboxes and compares the sum with the server's own limit: what one sandbox
 * takes the others lack. So locked memory and message queues are refused, and queued signals are few.
 */
const SHARED_LIMITS = { RLIMIT_MEMLOCK: 0, RLIMIT_MSGQUEUE: 0, RLIMIT_SIGPENDING: 1024 };

const NAMESPACES = ['pid', 'mount', 'ipc', 'uts', 'network', 'cgroup', 'user'];

export interface Mount {
  destination: string;
  type: string;
  source: string;
  options: string[];
}

/** A probe has no cgroup of its own. */
export type Bundled = Omit<Container, 'cgroup'> & Partial<Pick<Container, 'cgroup'>>;

export interface BundleTraits {
  ids: IdMapping;
  /** No process of the sandbox can have more, and some runtimes fail when asked for more. */
  maxOpenFiles: number;
  /**
   * Shares the host's kernel: gets a seccomp filter, masked paths and a view of its cgroup's memory events.
   */
  sharesKernel: boolean;
  seccomp?: Seccomp | undefined;
  /** Joins a user namespace that was made for the container, instead of making one. */
  joinsUser?: boolean;
  /** The guest may set up the redirect of connections to itself. */
  redirects?: boolean | undefined;
}

export function buildBundle(container: Bundled, traits: BundleTraits) {
  const ids = container.ids ?? traits.ids;
  const capabilities = [
    ...CAPABILITIES,
    ...(traits.sharesKernel ? [] : NAMING),
    ...(traits.redirects && traits.sharesKernel ? REDIRECTING : []),
  ];
  const user = userNamespace(container, traits);
  const mapping = [{ containerID: 0, hostID: ids.hostId, size: ids.size }];
  return {
    ociVersion: '1.0.2',
    hostname: container.hostname,
    root: { path: rootMount(container), readonly: container.readOnlyRoot },
    process: {
      terminal: false,
      user: { uid: 0, gid: 0 },
      args: [GUEST_PATH, 'dial', join(SOCKET_DIR, 'guest.sock')],
      cwd: '/',
      env: ['PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin', 'HOME=/root'],
      noNewPrivileges: true,
      oomScoreAdj: OOM_SCORE,
      // Neither inheritable nor ambient: users other than root have none.
      capabilities: {
        bounding: capabilities,
        effective: capabilities,
        permitted: capabilities,
        inheritable: [],
        ambient: [],
      },
      // In a namespace that it joins, the runtime may not be allowed to set them: it has them already and
      // passes them on.
      rlimits: Object.entries(user === undefined ? limitsOf(container, traits) : {}).map(([type, most]) => ({
        type,
        soft: most,
        hard: most,
      })),
    },
    mounts: mounts(container, traits),
    linux: {
      namespaces: NAMESPACES.map((type) =>
        type === 'user' && user !== undefined ? { type, path: user } : { type },
      ),
      uidMappings: mapping,
      gidMappings: mapping,
      ...(container.cgroup && { cgroupsPath: container.cgroup.ociPath }),
      ...(traits.sharesKernel && { maskedPaths: MASKED_PATHS, readonlyPaths: READONLY_PATHS }),
      ...(traits.seccomp && { seccomp: traits.seccomp }),
    },
  };
}

/** The limits of its processes, by the names that the kernel has for them. */
export function limitsOf(
  { openFiles }: Bundled,
  { maxOpenFiles, sharesKernel }: BundleTraits,
): Record<string, number> {
  return { RLIMIT_NOFILE: Math.min(openFiles, maxOpenFiles), ...(sharesKernel && SHARED_LIMITS) };
}

/** In the order in which they are made: each mount point lies in one that is there already. */
function mounts(container: Bundled, traits: BundleTraits): Mount[] {
  const memoryPath = traits.sharesKernel ? container.cgroup?.memoryPath : undefined;
  return [
    { destination: '/proc', type: 'proc', source: 'proc', options: ['nosuid', 'noexec', 'nodev'] },
    tmpfs('/dev', ['nosuid', 'strictatime', 'mode=755', 'size=65536k']),
    {
      destination: '/dev/pts',
      type: 'devpts',
      source: 'devpts',
      options: [
        'nosuid',
        'noexec',
        'newinstance',
        'ptmxmode=0666',
        'mode=0620',
        'gid=5',
        `max=${MAX_TERMINALS}`,
      ],
    },
    // Counts as memory of the sandbox, which is the bound.
    tmpfs('/dev/shm', ['nosuid', 'noexec', 'nodev', 'mode=1777']),
    ...(traits.sharesKernel ? hostSys() : ownKernel()),
    tmpfs('/run', ['nosuid', 'nodev', 'mode=755']),
    // Otherwise it is part of the root, bounded like the rest of the disk and kept by snapshots.
    ...(container.readOnlyRoot ? [tmpfs('/tmp', ['nosuid', 'nodev', 'mode=1777'])] : []),
    ...container.binds.map(({ source, target, readOnly }) => bind(source, target, [readOnly ? 'ro' : 'rw'])),
    ...furtherMounts(container),
    bind(container.socketDir, SOCKET_DIR, ['ro', 'noexec']),
    ...(memoryPath === undefined ? [] : [bind(memoryPath, join(SOCKET_DIR, 'cgroup'), ['ro', 'noexec'])]),
    bind(container.guestBinary, GUEST_PATH, ['ro']),
  ];
}

/** Path on the host where a further directory is mounted for this runtime process alone. */
export function furtherMount({ bundleDir }: Pick<Container, 'bundleDir'>, index: number): string {
  return join(bundleDir, 'mounts', String(index));
}

function furtherMounts(container: Bundled): Mount[] {
  return (container.mounts ?? []).map((mount: ContainerMount, index) =>
    mount.kind === 'directory'
      ? bind(furtherMount(container, index), mount.target, [mount.readOnly ? 'ro' : 'rw'])
      : tmpfs(mount.target, [
          'nosuid',
          'nodev',
          ...(mount.noexec ? ['noexec'] : []),
          `mode=${mount.mode}`,
          ...(mount.sizeBytes === undefined ? [] : [`size=${mount.sizeBytes}`]),
        ]),
  );
}

/** A kernel of its own counts and shows only what is the sandbox's. */
function ownKernel(): Mount[] {
  return [
    { destination: '/dev/mqueue', type: 'mqueue', source: 'mqueue', options: ['nosuid', 'noexec', 'nodev'] },
    { destination: '/sys', type: 'sysfs', source: 'sysfs', options: ['nosuid', 'noexec', 'nodev', 'ro'] },
  ];
}

function hostSys(): Mount[] {
  const empty = tmpfs('/sys', ['nosuid', 'noexec', 'nodev', 'ro', 'mode=755', 'size=64k']);
  return [empty, ...SYS_PATHS.map((path) => bind(path, path, ['ro', 'noexec']))];
}

function tmpfs(destination: string, options: string[]): Mount {
  return { destination, type: 'tmpfs', source: 'tmpfs', options };
}

function bind(source: string, destination: string, options: string[]): Mount {
  return { destination, type: 'bind', source, options: ['bind', 'nosuid', 'nodev', ...options] };
}
