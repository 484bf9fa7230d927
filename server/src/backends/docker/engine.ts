import { ABILITIES, type Ability, type Capabilities } from '@cay/sdk/protocol';
import type { CallScope } from '../backend.ts';
import { seccompProfile } from '../../host/runtimes/seccomp.ts';
import { LABELS, type Machine } from './container-config.ts';
import { dockerClient, type DockerClient } from './docker-client.ts';

/** What is read of `GET /info`. */
interface EngineInfo {
  Driver: string;
  DriverStatus: [string, string][] | null;
  Runtimes: Record<string, unknown>;
  ServerVersion?: string;
  KernelVersion?: string;
  DefaultRuntime: string;
  NCPU: number;
  MemTotal: number;
  MemoryLimit: boolean;
  CpuCfsQuota: boolean;
  PidsLimit: boolean;
  CgroupDriver: string;
  OSType: string;
  Architecture?: string;
  SecurityOptions?: string[] | null;
}

/** What the engine is and can do, looked at once. */
export interface Engine {
  machine: Machine;
  runtimes: string[];
  defaultRuntime: string;
  /** The filter of system calls for containers, as the engine takes it. Absent where the engine has none. */
  seccomp: string | undefined;
  /** Version, kernel, storage and runtimes: what the engine can do changes only with one of them. */
  identity: string;
  abilities: Record<Ability, boolean>;
  notes: Partial<Record<Ability, string>>;
}

export async function lookAtEngine(
  client: DockerClient,
  options: CallScope & { installation: string },
): Promise<Engine> {
  const action = 'look at the Docker engine';
  const info = (await client.json('GET', '/info', { action, signal: options.signal })) as EngineInfo;
  const abilities = Object.fromEntries(ABILITIES.map((ability) => [ability, true])) as Record<
    Ability,
    boolean
  >;
  const notes: Capabilities['notes'] = {
    isolation: 'Namespaces, seccomp and few capabilities on a shared kernel, unless the runtime is gVisor',
    openFilesLimit: 'Where the engine may not raise the limit of open files, its own lower one holds',
  };
  const lacks = (ability: Ability, note: string) => {
    abilities[ability] = false;
    notes[ability] = note;
  };
  if (!info.MemoryLimit) lacks('memoryLimit', 'The kernel of the Docker engine does not limit memory');
  if (!info.CpuCfsQuota) lacks('cpuLimit', 'The kernel of the Docker engine does not limit CPU time');
  if (!info.PidsLimit) lacks('pidsLimit', 'The kernel of the Docker engine does not limit processes');
  if (info.CgroupDriver === 'none') lacks('freeze', 'The Docker engine runs without cgroups');
  if (!abilities.memoryLimit || !abilities.cpuLimit)
    lacks('resize', 'The Docker engine cannot limit what would be changed');
  lacks('ownIds', 'Containers of one engine share its ids, whether it remaps users or not');
  notes.snapshots =
    'Files alone, without volumes. A snapshot is an image of all that the container has written, and takes as long';
  lacks('snapshotXattrs', 'Docker leaves extended attributes of files out of images');
  lacks('suspend', 'a pause keeps processes here; stopping keeps the files alone');
  lacks(
    'memorySnapshots',
    'Docker keeps no processes without the experimental CRIU, and gVisor not through Docker',
  );
  lacks('volumeSize', 'volumes of the Docker engine have no size');
  lacks('volumeCopies', 'the Docker engine cannot copy a volume');
  lacks('volumeArchives', 'the Docker engine gives archives of containers alone');
  lacks('volumeSubpath', 'Docker before 26 mounts all of a volume');
  lacks('bucketMounts', 'containers of the engine mount no buckets: use copies');
  lacks('hostPaths', "directories of the engine's machine are not mounted");
  const disk = await whyNoDiskLimit(client, info, options);
  if (disk !== undefined) lacks('diskLimit', disk);
  return {
    machine: { cores: info.NCPU, memoryBytes: info.MemTotal },
    identity: JSON.stringify([
      info.ServerVersion,
      info.KernelVersion,
      info.Driver,
      info.DriverStatus,
      info.Runtimes,
    ]),
    runtimes: namesOf(info),
    defaultRuntime: info.DefaultRuntime,
    seccomp: seccompFor(info),
    abilities,
    notes,
  };
}

/** As the kernel names them, and the engine with it. */
const ARCHITECTURES: Record<string, NodeJS.Architecture> = { x86_64: 'x64', aarch64: 'arm64' };

/**
 * The same list as on this machine's own runtimes: that of an engine depends on its version, and lets through
 * what sandboxes have no use for. An engine of another architecture keeps its own.
 */
function seccompFor({ Architecture = '', SecurityOptions }: EngineInfo): string | undefined {
  const architecture = ARCHITECTURES[Architecture];
  const filters = SecurityOptions?.some((option) => option.split(',').includes('name=seccomp'));
  const profile = architecture && filters ? seccompProfile({ architecture }) : undefined;
  return profile && JSON.stringify(profile);
}

/** The engine's address where the settings name none. */
export function engineAddress(): string {
  return process.env['DOCKER_HOST'] ?? 'unix:///var/run/docker.sock';
}

/** All runtimes that are registered with an engine. */
export async function runtimesOfEngine(host = engineAddress()): Promise<string[]> {
  const client = dockerClient(host);
  try {
    return namesOf(
      (await client.json('GET', '/info', { action: 'look at the Docker engine' })) as EngineInfo,
    );
  } finally {
    client.close();
  }
}

/** The others are names for the same thing that containerd gives it. */
function namesOf({ Runtimes }: Pick<EngineInfo, 'Runtimes'>): string[] {
  return Object.keys(Runtimes)
    .filter((name) => !name.startsWith('io.containerd.'))
    .sort();
}

/** Only a container that was made with a limit shows that the storage driver has them. */
async function whyNoDiskLimit(
  client: DockerClient,
  info: EngineInfo,
  options: CallScope & { installation: string },
): Promise<string | undefined> {
  const filesystem = info.DriverStatus?.find(([name]) => name === 'Backing Filesystem')?.[1];
  const where = `storage driver ${info.Driver}${filesystem ? ` on ${filesystem}` : ''}`;
  // The kernel can mark the quotas inconsistent when containers are removed. Docker ignores that, and then a
  // sandbox with a limit can fill the disk of all.
  if (info.Driver === 'btrfs') return "The limits of Docker's storage driver btrfs do not always hold";
  if (!['zfs', 'devicemapper'].includes(info.Driver) && !(info.Driver === 'overlay2' && filesystem === 'xfs'))
    return `Docker's ${where} has no limits; overlay2 on xfs with "pquota" and zfs have`;
  const action = 'find out whether Docker limits disks';
  const [image] = (await client.json('GET', '/images/json', { action, signal: options.signal })) as {
    Id: string;
  }[];
  if (!image) return `Docker has no image yet to find out whether its ${where} has limits`;
  try {
    const body = {
      Image: image.Id,
      Entrypoint: ['/none'],
      Labels: { [LABELS.scratch]: options.installation },
      HostConfig: { StorageOpt: { size: String(1024 ** 3) } },
    };
    const { Id } = (await client.json('POST', '/containers/create', {
      action,
      body,
      signal: options.signal,
    })) as { Id: string };
    await client.json('DELETE', `/containers/${Id}`, {
      action,
      query: { force: true, v: true },
      allow: [404, 409],
    });
    return undefined;
  } catch (error) {
    return `Docker's ${where} refuses limits: ${(error as Error).message}`;
  }
}
