/**
 * Opens the local backend in a directory, with the host's resources that it needs. One server at a time has
 * the directory.
 */
import { chmod, mkdir, rm, stat } from 'node:fs/promises';
import { dirname, join, resolve } from 'node:path';
import { CayError } from '@cay/sdk/protocol';
import type { BucketOpening } from '../../bucket-mounts/bucket-mounts.ts';
import { openBucketMounts } from '../../bucket-mounts/open-bucket-mounts.ts';
import type { Egress } from '../../egress/egress.ts';
import { guestBinary } from '../../guest/guest-binary.ts';
import { detectCgroups } from '../../host/cgroups/detect.ts';
import type { HostResources } from '../../host/host-resources.ts';
import { allBucketDirectories } from '../../host/instances/instance-mount.ts';
import { storeGuest } from '../../host/instances/kept-guest.ts';
import { openIdRanges } from '../../host/instances/id-ranges.ts';
import { probeShift, type ShiftProbe } from '../../host/instances/probe-shift.ts';
import { raiseKernelLimits } from '../../host/kernel-limits.ts';
import { requireNamedRunsc } from '../../host/runtimes/find-runsc.ts';
import { crunRuntime } from '../../host/runtimes/crun.ts';
import { processRuntime } from '../../host/runtimes/process.ts';
import { runcRuntime } from '../../host/runtimes/runc.ts';
import type { Runtime } from '../../host/runtimes/runtime.ts';
import { runscRuntime } from '../../host/runtimes/runsc.ts';
import { openSnapshotter } from '../../host/snapshots/open.ts';
import { openVolumeStore } from '../../host/volumes/open-volume-store.ts';
import { baseTemplate } from '../../host/templates/base.ts';
import { scratchTemplate } from '../../host/templates/scratch.ts';
import type { Template } from '../../host/templates/template.ts';
import { readJson, writeFileAtomic } from '../../lib/atomic-file.ts';
import { lockDirectory } from '../../host/lock-directory.ts';
import { holdLauncher } from '../../lib/shared-launcher.ts';
import { bootId } from '../../lib/proc.ts';
import type { SealedBox } from '../../lib/sealed-box.ts';
import { randomName } from '../../lib/random-name.ts';
import { allowsRuntime, UNISOLATED } from '../../policy/allow-runtime.ts';
import { DEFAULT_POLICY } from '../../policy/policy.ts';
import type { Orphan } from '../backend.ts';
import { localBackend, surveyOrphans, type LocalBackend, type LocalOptions } from './local.ts';
import { openImages } from './images.ts';
import { openImageStore, type ImageSettings } from '../../host/images/open-image-store.ts';
import { openSandboxRecords } from './sandbox-record.ts';
import { openSnapshotRecords } from './snapshot-record.ts';

export interface OpenLocalOptions extends Pick<
  LocalOptions,
  'runtime' | 'policy' | 'poolSize' | 'poolTemplate' | 'startsAtOnce' | 'onSwept' | 'onError'
> {
  dir: string;
  /** What programs inside reach the network through. Absent: they reach nothing. */
  egress?: Egress | undefined;
  /** Connects mounts of buckets with the control plane. Absent: sandboxes mount no buckets. */
  buckets?: BucketOpening | undefined;
  /** How often what was left behind is looked for while serving. Default every minute; 0 is never. */
  sweepEveryMs?: number;
  /** The storage driver; chosen by what the disk is if absent. */
  storage?: string;
  /** The program of gVisor. Default: `CAY_RUNSC`, or the newest that is found. */
  runsc?: string;
  /**
   * Seals the environments of sandboxes in their records. Without it they are in the clear, for root alone.
   */
  box?: SealedBox;
  /** Where images come from, and how much of them is kept. */
  imageSettings?: ImageSettings;
  /**
   * Puts this process into a cgroup of its own beside the sandboxes', unless a service manager has put it
   * into one.
   */
  protectServer?: boolean;
}

/**
 * The files of sandboxes are stored as these ids of the host: beyond all that accounts and other container
 * engines use by default. Where trees cannot be shown with other ids the users of every sandbox have them
 * too.
 */
const IDS = { hostId: 1_879_048_192, size: 65_536 };

/** All runtimes that this backend knows, whether they work here or not. */
export const RUNTIME_NAMES: readonly string[] = ['runsc', 'crun', 'runc', UNISOLATED];

const LOCK = 'lock';
const IMAGE_STORE = 'image-store';
/** Further names of ours in the directory, beside those that the storage removes itself. */
const OURS = [
  'instances',
  'runtimes',
  'sandboxes',
  'snapshots',
  'images',
  'guests',
  'volumes',
  'buckets.sock',
  'bucket-writes',
  'bucket-probe',
  IMAGE_STORE,
  'installation.json',
  'probes-local.json',
];

const SWEEP_EVERY_MS = 60_000;

export async function openLocal(options: OpenLocalOptions): Promise<LocalBackend> {
  await makePassable(options.dir);
  // Opening takes the sockets of what runs and sweeps what no record knows: never beside another server.
  const lock = lockDirectory(options.dir, LOCK);
  let parts: LocalParts | undefined;
  let releaseLauncher = () => {};
  try {
    raiseKernelLimits();
    parts = await openLocalParts(options);
    if (options.protectServer) protect(parts.resources, options.onError);
    // Also where no buckets can be opened: mounts of an earlier server end here.
    parts.resources.bucketMounts = await openBucketMounts({
      dir: options.dir,
      directories: () => allBucketDirectories(options.dir),
      opening: options.buckets,
      guestBinary: parts.resources.guestBinary,
      onError: options.onError ?? (() => {}),
    });
    const { bucketMounts } = parts.resources;
    const { trees, guestBinary: binary } = parts.resources;
    releaseLauncher = holdLauncher(binary, ['launch']);
    const imageStore = await openImageStore({
      dir: join(options.dir, IMAGE_STORE),
      trees,
      guestBinary: binary,
      ...(options.imageSettings && { settings: options.imageSettings }),
      ...(options.onError && { onError: options.onError }),
    });
    return await localBackend({
      sweepEveryMs: SWEEP_EVERY_MS,
      ...options,
      ...parts,
      imageStore,
      async onClosed(how) {
        await bucketMounts?.close();
        releaseLauncher();
        if (how === 'destroyed')
          for (const name of OURS) await rm(join(options.dir, name), { recursive: true, force: true });
        lock.release();
        if (how === 'destroyed') await rm(join(options.dir, LOCK), { force: true });
      },
    });
  } catch (error) {
    releaseLauncher();
    await parts?.resources.bucketMounts?.close().catch(() => {});
    await parts?.resources.trees.close().catch(() => {});
    lock.release();
    throw error;
  }
}

/**
 * The orphans in the directory of a server that does not run. Its storage is mounted for that, and nothing
 * else is touched.
 */
export async function surveyLocal(options: Pick<OpenLocalOptions, 'dir' | 'storage'>): Promise<Orphan[]> {
  const lock = lockDirectory(options.dir, LOCK);
  try {
    const parts = await openLocalParts(options);
    try {
      return await surveyOrphans(parts);
    } finally {
      await parts.resources.trees.close();
    }
  } finally {
    lock.release();
  }
}

type LocalParts = Pick<
  LocalOptions,
  'resources' | 'records' | 'snapshots' | 'images' | 'templates' | 'volumes'
>;

/** The host's resources and the records of that directory. */
export async function openLocalParts(
  options: Pick<OpenLocalOptions, 'dir' | 'storage' | 'box' | 'policy' | 'runsc' | 'egress' | 'onError'>,
): Promise<LocalParts> {
  const { dir, policy = DEFAULT_POLICY } = options;
  requireNamedRunsc(options.runsc);
  const installation = await installationName(dir);
  const [cgroups, records, snapshots, images, guest] = await Promise.all([
    detectCgroups({ prefix: `cay-${installation}` }),
    openSandboxRecords(join(dir, 'sandboxes'), options.box),
    openSnapshotRecords(join(dir, 'snapshots'), options.box),
    openImages(join(dir, 'images')),
    storeGuest(join(dir, 'guests'), guestBinary()),
  ]);
  // Last, because it mounts: whatever else fails has then left nothing to take back.
  const trees = await openSnapshotter({ dir: join(dir, 'storage'), name: options.storage });
  // What has no isolation does not exist here unless the operator wants it.
  const makers = [crunRuntime, runcRuntime, ...(allowsRuntime(policy, UNISOLATED) ? [processRuntime] : [])];
  const common = { stateDir: join(dir, 'runtimes'), ids: IDS, egress: options.egress !== undefined };
  const runtimes = [
    runscRuntime({ ...common, ...(options.runsc !== undefined && { binary: options.runsc }) }),
    ...makers.map((make) => make(common)),
  ];
  let shift: Promise<ShiftProbe> | undefined;
  const resources: HostResources = {
    dir,
    trees,
    cgroups,
    runtimes: new Map<string, Runtime>(runtimes.map((runtime) => [runtime.name, runtime])),
    guestBinary: guest,
    ranges: openIdRanges({ instancesDir: resolve(dir, 'instances') }),
    shift: () => (shift ??= probeShift(trees, join(dir, 'runtimes', 'probes', 'ids'), guest)),
    egress: options.egress,
    bootId: bootId(),
  };
  const templates = new Map<string, Template>(
    [baseTemplate(), scratchTemplate()].map((template) => [template.name, template]),
  );
  const volumes = await openVolumeStore({
    dir: join(dir, 'volumes'),
    trees,
    ids: IDS,
    guestBinary: guest,
    ...(options.onError && { onError: options.onError }),
  });
  return { resources, records, snapshots, images, templates, volumes };
}

function protect({ cgroups }: HostResources, onError: (error: unknown) => void = () => {}): void {
  try {
    cgroups.server.enter();
  } catch (error) {
    // The server runs without a cgroup of its own, too.
    onError(error);
  }
}

/**
 * Sandboxes reach their files with ids of their own, so every directory on the way has to let them
 * pass. Ours is made so; what is private is in directories of mode 0700 below it.
 */
async function makePassable(dir: string): Promise<void> {
  await mkdir(dir, { recursive: true, mode: 0o711 });
  await chmod(dir, 0o711);
  for (let parent = dirname(resolve(dir)); parent !== '/'; parent = dirname(parent)) {
    if (((await stat(parent)).mode & 0o001) !== 0) continue;
    throw new CayError(
      'failed_precondition',
      `Cannot keep sandboxes in "${dir}": "${parent}" lets only its owner pass`,
      {
        hint: `choose another data directory, or run: chmod o+x ${parent}`,
      },
    );
  }
}

/** Tells the cgroups of one data directory from those of another on the same machine. */
async function installationName(dir: string): Promise<string> {
  const file = join(dir, 'installation.json');
  const known = (await readJson(file)) as { name?: string } | undefined;
  if (known?.name) return known.name;
  const name = randomName(8);
  await writeFileAtomic(file, JSON.stringify({ name }));
  return name;
}
