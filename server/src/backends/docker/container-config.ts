import { NAME_SERVER } from '../../guest/name-server.ts';
import type { Limits, SandboxId, SandboxSpec, SnapshotId, VolumeId } from '@cay/sdk/protocol';

/**
 * Where the guest lies in every prepared image, and where it listens. The directory of the socket is a tmpfs.
 */
export const GUEST_PATH = '/.cay/guest';
export const SOCKET_DIRECTORY = '/.cay/run';
export const SOCKET_PATH = `${SOCKET_DIRECTORY}/guest.sock`;

export const LABELS = {
  installation: 'cay.installation',
  sandbox: 'cay.sandbox',
  specHash: 'cay.spec-hash',
  /** A listing has it without an inspect of each container. */
  runtime: 'cay.runtime',
  /** The limit as it was asked for; what the storage driver gets may be more. */
  diskBytes: 'cay.disk-bytes',
  /** What the sandbox or the snapshot was asked to be (`spec-label.ts`). */
  spec: 'cay.spec',
  /** The snapshot that a container was made from. */
  parent: 'cay.parent',
  /** On images: the snapshot that it is. */
  snapshot: 'cay.snapshot',
  /** On images of snapshots: the bytes that the image below has. */
  baseBytes: 'cay.base-bytes',
  /** On volumes. */
  volume: 'cay.volume',
  /** On containers that have the files of a snapshot and never run. */
  reader: 'cay.reader',
  /** On containers that exist only while an image is prepared. */
  scratch: 'cay.scratch',
  /** On prepared images: the guest that is in them. */
  guest: 'cay.guest',
} as const;

/** What the guest needs to run commands as other users, to serve files with their rights and to end them. */
const CAPABILITIES = [
  'CHOWN',
  'DAC_OVERRIDE',
  'FOWNER',
  'FSETID',
  'KILL',
  'NET_BIND_SERVICE',
  'SETGID',
  'SETPCAP',
  'SETUID',
];

/** The machine that the engine runs on. A limit beyond it is the machine's own. */
export interface Machine {
  cores: number;
  memoryBytes: number;
}

export interface ContainerConfigOptions {
  installation: string;
  specHash: string;
  image: string;
  runtime: string;
  machine: Machine;
  /** The spec as a label has it. */
  specText: string;
  /** The snapshot that the image is of. */
  parent?: SnapshotId | undefined;
  /** False where the engine may not raise the limit, which is then lower than the one asked for. */
  setOpenFiles: boolean;
  /** The filter of system calls. Absent: the engine's own. */
  seccomp?: string | undefined;
}

/** What the engine calls a volume. Engines are shared, so the installation is part of it. */
export function volumeName(installation: string, id: VolumeId): string {
  return `cay-${installation}-${id}`;
}

/** The body of `POST /containers/create`. */
export function containerConfig(id: SandboxId, spec: SandboxSpec, options: ContainerConfigOptions): object {
  const { limits, readOnlyRoot } = spec;
  return {
    Image: options.image,
    Entrypoint: [GUEST_PATH],
    Cmd: ['serve', SOCKET_PATH],
    User: '0:0',
    // Docker makes a missing working directory, even where the root is read-only; elsewhere the guest makes
    // it.
    WorkingDir: readOnlyRoot ? spec.workdir : '/',
    Hostname: id.replace('_', '-'),
    Healthcheck: { Test: ['NONE'] },
    NetworkDisabled: true,
    Labels: {
      [LABELS.installation]: options.installation,
      [LABELS.sandbox]: id,
      [LABELS.specHash]: options.specHash,
      [LABELS.runtime]: options.runtime,
      [LABELS.spec]: options.specText,
      // The image of a snapshot has the labels of the container that it was, which are not this one's.
      [LABELS.parent]: options.parent ?? '',
      [LABELS.diskBytes]: limits.diskBytes === null ? '' : String(limits.diskBytes),
    },
    HostConfig: {
      Runtime: options.runtime,
      NetworkMode: 'none',
      Dns: [NAME_SERVER],
      IpcMode: 'private',
      CapDrop: ['ALL'],
      CapAdd: CAPABILITIES,
      SecurityOpt: [
        'no-new-privileges:true',
        ...(options.seccomp === undefined ? [] : [`seccomp=${options.seccomp}`]),
      ],
      ReadonlyRootfs: readOnlyRoot,
      Tmpfs: {
        [SOCKET_DIRECTORY]: 'rw,nosuid,nodev,noexec,size=64k,mode=0700',
        ...tmpfsOf(spec),
        ...(readOnlyRoot && {
          '/tmp': 'rw,nosuid,nodev,exec,mode=1777',
          '/run': 'rw,nosuid,nodev,exec,mode=0755',
        }),
      },
      Mounts: volumesOf(spec, options.installation),
      Init: false,
      RestartPolicy: { Name: 'no' },
      LogConfig: { Type: 'none' },
      ...resources(limits, options.machine),
      ...(options.setOpenFiles && {
        Ulimits: [{ Name: 'nofile', Soft: limits.openFiles, Hard: limits.openFiles }],
      }),
      ...(limits.diskBytes !== null && {
        StorageOpt: { size: String(limits.diskBytes) },
      }),
    },
  };
}

function tmpfsOf({ mounts = [] }: SandboxSpec): Record<string, string> {
  return Object.fromEntries(
    mounts.flatMap((mount) => {
      if (mount.type !== 'tmpfs') return [];
      const size = mount.sizeBytes === undefined ? '' : `,size=${mount.sizeBytes}`;
      return [[mount.path, `rw,nosuid,nodev,${mount.noexec ? 'noexec' : 'exec'},mode=${mount.mode}${size}`]];
    }),
  );
}

function volumesOf({ mounts = [] }: SandboxSpec, installation: string): object[] {
  return mounts.flatMap((mount) =>
    mount.type === 'volume'
      ? [
          {
            Type: 'volume',
            Source: volumeName(installation, mount.volume as VolumeId),
            Target: mount.path,
            ReadOnly: mount.readOnly,
            // What the image has there is not the volume's.
            VolumeOptions: { NoCopy: true },
          },
        ]
      : [],
  );
}

/**
 * Limits in the engine's words. The engine refuses more cores than there are, and `update` cannot
 * lift a limit again, so none and too many both become the machine's own.
 */
export function resources(
  limits: Partial<Pick<Limits, 'cpus' | 'memoryBytes' | 'pids'>>,
  machine: Machine,
): object {
  const { cpus, memoryBytes, pids } = limits;
  const memory = memoryBytes ?? machine.memoryBytes;
  return {
    ...(cpus !== undefined && { NanoCpus: Math.round(Math.min(cpus ?? machine.cores, machine.cores) * 1e9) }),
    // Equal to the memory limit: no swap beyond it.
    ...(memoryBytes !== undefined && { Memory: memory, MemorySwap: memory }),
    ...(pids !== undefined && { PidsLimit: pids ?? -1 }),
  };
}
