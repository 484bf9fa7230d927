/**
 * An Instance is one incarnation of a sandbox on this host: a container with its cgroup, its directory and
 * the link to its guest. It runs on a tree that it does not own; the tree outlives it when a sandbox is
 * stopped and started again.
 *
 * `instance.json` is written first and names everything that belongs to the instance. So an instance is
 * destroyed in the same way whether it is complete, half made, or left by a server that was killed.
 *     <dir>/instances/<name>/instance.json   the facts
 *                            pooled          exists while the instance is in the warm pool
 *                            bundle/         files of the runtime, and the mount point of the root
 *                            run/            mounted at /run/cay; holds guest.sock
 *                            guest           the guest's program (see `kept-guest.ts`)
 */
import { poll } from '../../lib/poll.ts';
import { setTimeout as sleep } from 'node:timers/promises';
import { existsSync, rmSync } from 'node:fs';
import { chown, mkdir, readdir, rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { CayError, type Limits, type SandboxId } from '@cay/sdk/protocol';
import { systemReason } from '@cay/sdk/system-error';
import { z } from 'zod';
import type { GuardedLimits, GuestClient } from '../../guest/guest-client.ts';
import { listenForGuest, type GuestListener } from '../../guest/listen-for-guest.ts';
import { readJson, writeFileAtomic } from '../../lib/atomic-file.ts';
import { isDiskFull } from '../../lib/disk-full.ts';
import type { Cgroup, CgroupLimits, CgroupReading } from '../cgroups/cgroup.ts';
import type { Container, IdMapping, Runtime } from '../runtimes/runtime.ts';
import { ImageOriginSchema } from '../templates/template.ts';
import type { HostResources } from '../host-resources.ts';
import { bucketsOf, InstanceMountSchema, mountsOf } from './instance-mount.ts';
import { GUEST_FILE, keepGuest } from './kept-guest.ts';
import { parking, type Parking } from './parking.ts';

const InstanceFactsSchema = z.object({
  name: z.string().regex(/^i-[a-z0-9]{20}$/),
  runtime: z.string(),
  template: z.string(),
  /** The committed tree of the template that the instance's tree was made from. */
  templateTree: z.string(),
  /** The instance's active tree. */
  tree: z.string(),
  binds: z.array(z.object({ source: z.string(), target: z.string(), readOnly: z.boolean() })),
  /** The image that the template is, if it is one. */
  image: ImageOriginSchema.optional(),
  /** What is mounted beside its tree. */
  mounts: z.array(InstanceMountSchema).optional(),
  readOnlyRoot: z.boolean(),
  openFiles: z.int(),
  bootId: z.string(),
  /** Made for the warm pool, not for a request. */
  pooled: z.boolean(),
  /**
   * The runtime's `compatibility` at the start, where it can capture: the program may be replaced while the
   * instance runs. Absent: an earlier version of the server has started it.
   */
  build: z.string().optional(),
  /** Its hostname at the start. Absent: its name. */
  hostname: z.string().optional(),
  /** The host ids of its users, chosen at the start. Absent: the ids of its runtime. */
  ids: z.object({ hostId: z.int(), size: z.int() }).optional(),
});
export type InstanceFacts = z.infer<typeof InstanceFactsSchema>;

export interface Instance {
  readonly facts: InstanceFacts;
  readonly cgroup: Cgroup;
  readonly runtime: Runtime;
  readonly link: GuestListener;
  /** Absent where the kernel is that of the machine, or the machine has no freezer. */
  readonly parking: Parking | undefined;
  /** Limits that the guest enforces, sent with every hello. */
  guarded: GuardedLimits;
  /** Settles when the runtime's command has returned; resources are removed only after that. */
  started: Promise<void>;
  /** Its processes are stopped, so the guest cannot answer. */
  frozen: boolean;
  hostname: string;
  /** Its name in errors: that of the sandbox, once it belongs to one. */
  called: string;
  /** Absent while it belongs to no sandbox, in the warm pool. */
  sandbox: SandboxId | undefined;
  /** Called when the connection to the guest was lost. */
  onLost: () => void;
}

export type InstanceLimits = Pick<Limits, 'cpus' | 'memoryBytes' | 'pids'>;

/** From the return of the runtime's command to the guest's hello. A loaded machine may be slow. */
const GUEST_TIMEOUT_MS = 30_000;
/** Timeout of a call to a guest that may have to reconnect first. */
const GUARD_TIMEOUT_MS = 5_000;
const ALIVE_POLL_MS = 100;

function paths(resources: HostResources, name: string) {
  const dir = join(resources.dir, 'instances', name);
  return {
    dir,
    facts: join(dir, 'instance.json'),
    bundle: join(dir, 'bundle'),
    run: join(dir, 'run'),
    socket: join(dir, 'run', 'guest.sock'),
    pooled: join(dir, 'pooled'),
    guest: join(dir, GUEST_FILE),
  };
}

/**
 * Starts the instance and resolves when its guest has connected. On failure everything but the tree is
 * removed.
 */
export function startInstance(
  resources: HostResources,
  facts: InstanceFacts,
  limits: InstanceLimits,
): Promise<Instance> {
  return launchInstance(resources, facts, limits, {
    guestBinary: resources.guestBinary,
    launch: (runtime, container) => runtime.start(container),
  });
}

export interface Launch {
  /** The guest's program. The instance gets a link of its own to it. */
  guestBinary: string;
  /** It brings memory along: from the start on there has to be room for all that the instance may use. */
  full?: boolean;
  /** Makes the runtime start the container. */
  launch(runtime: Runtime, container: Container): Promise<void>;
}

/** Like `startInstance`, in another way. */
export async function launchInstance(
  resources: HostResources,
  planned: InstanceFacts,
  limits: InstanceLimits,
  { guestBinary, full = false, launch }: Launch,
): Promise<Instance> {
  const runtime = runtimeOf(resources, planned);
  const cgroup = resources.cgroups.group(planned.name);
  const { dir, facts: factsFile, bundle, run, pooled, guest } = paths(resources, planned.name);
  let facts = planned;
  let instance: Instance | undefined;
  try {
    await mkdir(dir, { recursive: true, mode: 0o711 });
    const own = runtime.isolation !== 'none' && (await resources.shift()).works;
    if (own) facts = { ...planned, ids: resources.ranges.claim(dir) };
    const build = await runtime.checkpoints?.compatibility();
    if (build !== undefined) facts = { ...facts, build };
    const ids = idsOf(runtime, facts);
    // No instance outlives a power loss, so that its facts need not.
    await writeFileAtomic(factsFile, JSON.stringify(facts), { powerLoss: 'anything' });
    if (facts.pooled) await writeFile(pooled, '');
    await Promise.all([mkdir(bundle, { mode: 0o711 }), makeRunDir(ids, run), keepGuest(guestBinary, guest)]);
    const [root] = await Promise.all([
      resources.trees.path(facts.tree),
      cgroup.create(full ? { ...hardLimits(runtime, limits), cpus: null } : startLimits(runtime, limits)),
    ]);
    instance = await adoptInstance(resources, facts, limits);
    const answered = instance.link.ready({ timeoutMs: GUEST_TIMEOUT_MS });
    // If the runtime fails, this promise has no other listener.
    answered.catch(() => {});
    const started = launch(runtime, {
      name: facts.name,
      bundleDir: bundle,
      rootDir: root,
      ids,
      readOnlyRoot: facts.readOnlyRoot,
      socketDir: run,
      guestBinary: guest,
      binds: facts.binds,
      mounts: await mountsOf(resources, facts.mounts ?? [], {
        dir,
        hostId: ids.hostId,
        closesLate: runtime.isolation === 'kernel',
      }),
      cgroup,
      hostname: instance.hostname,
      openFiles: facts.openFiles,
    });
    // The guest often connects before the runtime's command has returned.
    instance.started = started;
    const alive = started.then(() => requireAlive(resources, facts, answered));
    await Promise.race([answered, alive.then(() => answered)]);
    await cgroup.update(changed(startLimits(runtime, limits), hardLimits(runtime, limits)));
    return instance;
  } catch (error) {
    if (instance) await destroyInstance(resources, instance);
    else await destroyRemains(resources, facts);
    if (error instanceof CayError) throw error;
    throw new CayError(
      isDiskFull(error) ? 'resource_exhausted' : 'unavailable',
      `Cannot start an instance on ${facts.runtime}: ${systemReason(error)}`,
      { cause: error },
    );
  }
}

/** Rejects as soon as no process is left that could connect. */
async function requireAlive(
  resources: HostResources,
  facts: InstanceFacts,
  answered: Promise<unknown>,
): Promise<void> {
  let settled = false;
  const settle = () => void (settled = true);
  answered.then(settle, settle);
  for (;;) {
    await sleep(ALIVE_POLL_MS);
    if (settled) return;
    if (await isAlive(resources, facts)) continue;
    const { oomKills } = await resources.cgroups
      .group(facts.name)
      .read()
      .catch(() => ({ oomKills: 0 }));
    const why = oomKills > 0 ? 'its memory limit is too low' : 'its first process ended before it answered';
    throw new CayError('unavailable', `Cannot start an instance on ${facts.runtime}: ${why}`);
  }
}

/**
 * Takes over an instance that an earlier server started: its guest connects to the socket made here.
 * `hostname` is the one that it was given since.
 */
export async function adoptInstance(
  resources: HostResources,
  facts: InstanceFacts,
  limits: InstanceLimits,
  hostname = facts.hostname ?? facts.name,
): Promise<Instance> {
  const runtime = runtimeOf(resources, facts);
  const owner = idsOf(runtime, facts).hostId;
  if (facts.ids) resources.ranges.keep(paths(resources, facts.name).dir, facts.ids);
  // A server that was killed during a capture has left the instance stopped.
  await runtime.checkpoints?.release(facts.name);
  const cgroup = resources.cgroups.group(facts.name);
  const mayPark = runtime.isolation === 'kernel' && resources.cgroups.controllers.freezer;
  const instance: Omit<Instance, 'link'> = {
    facts,
    cgroup,
    runtime,
    parking: mayPark ? parking(cgroup) : undefined,
    guarded: guardedBy(runtime, limits),
    started: Promise.resolve(),
    frozen: false,
    hostname,
    called: facts.name,
    sandbox: undefined,
    onLost: () => {},
  };
  const link = await listenForGuest(paths(resources, facts.name).socket, {
    hello: () => ({
      sandbox: facts.name,
      incarnation: 1,
      ...instance.guarded,
      // A restored instance has the hostname of the captured one. Without a kernel of its own the guest
      // cannot change it.
      ...(runtime.isolation === 'kernel' && { hostname: instance.hostname }),
    }),
    called: () => instance.called,
    // Without isolation it has the network of the machine.
    egress:
      resources.egress && runtime.isolation !== 'none'
        ? { egress: resources.egress, sandbox: () => instance.sandbox }
        : undefined,
    owner: { uid: owner, gid: owner },
    onChange: (client) => instance.parking?.watch(client),
    onLost: () => instance.onLost(),
  });
  return Object.assign(instance, { link });
}

/**
 * Marks the instance as used: it never goes back to the warm pool, even if the record of its sandbox is lost.
 * Synchronous, so that no other code runs between taking it and marking it.
 */
export function claimInstance(resources: HostResources, { facts }: Instance): void {
  rmSync(paths(resources, facts.name).pooled, { force: true });
}

/** Where the instance has its guest's program. One of an earlier version of the server has none there. */
export function guestOf(resources: HostResources, { facts }: Instance): string {
  return paths(resources, facts.name).guest;
}

/** True if its first process, and any process at all, runs. */
export async function isAlive(resources: HostResources, facts: InstanceFacts): Promise<boolean> {
  if (facts.bootId !== resources.bootId) return false;
  // Without a PID namespace other processes outlive the first one.
  if ((await resources.runtimes.get(facts.runtime)?.status(facts.name)) === 'stopped') return false;
  return (await resources.cgroups.group(facts.name).processes()).length > 0;
}

/** Changes the limits that can be changed while it runs. */
export async function limitInstance(instance: Instance, limits: Partial<InstanceLimits>): Promise<void> {
  const { cgroup, runtime, link } = instance;
  if (runtime.guestGuards) {
    const client = await link.ready({ timeoutMs: GUARD_TIMEOUT_MS });
    if (typeof limits.memoryBytes === 'number') await requireRoom(client, limits.memoryBytes);
    const guarded = guardedBy(runtime, limits);
    Object.assign(instance.guarded, guarded);
    await client.configure(guarded);
  }
  await cgroup.update(hardLimits(runtime, limits));
}

/** Gives a running instance another hostname, on whatever runtime that is possible. */
export async function nameInstance(instance: Instance, hostname: string): Promise<void> {
  const { runtime, link, facts } = instance;
  if (instance.hostname === hostname) return;
  instance.hostname = hostname;
  if (runtime.isolation === 'kernel')
    await (await link.ready({ timeoutMs: GUARD_TIMEOUT_MS })).configure({ hostname });
  else await runtime.setHostname?.(facts.name, hostname);
}

/** Sets the limits of the cgroup again, from the record. */
export async function restoreLimits(
  { cgroup, runtime }: Instance,
  { cpus, memoryBytes, pids }: InstanceLimits,
): Promise<void> {
  await cgroup.update(hardLimits(runtime, { cpus, memoryBytes, pids }));
}

/** Stops all its processes, or continues them. */
export async function freezeInstance(instance: Instance, frozen: boolean): Promise<void> {
  if (frozen) {
    instance.frozen = true;
    instance.parking?.hold();
  }
  await (frozen ? instance.cgroup.freeze() : instance.cgroup.thaw());
  instance.frozen = frozen;
  if (!frozen) instance.parking?.release();
}

/**
 * Rejects `failed_precondition` if more memory is in use. Memory of a process that has just ended is freed a
 * moment later, so it retries.
 */
async function requireRoom(client: GuestClient, memoryBytes: number): Promise<void> {
  let used = 0;
  const fits = await poll(
    async () => {
      used = (await client.stats()).memoryBytes;
      return used <= memoryBytes || undefined;
    },
    { timeoutMs: 3_000, delayMs: 100 },
  );
  if (!fits) {
    throw new CayError(
      'failed_precondition',
      `Cannot lower the memory limit to ${memoryBytes} bytes: ${used} bytes are in use`,
    );
  }
}

/** Resource use. Where the kernel sees the sandbox as one process, the guest reports what is inside. */
export async function readInstance(instance: Instance): Promise<CgroupReading> {
  const { cgroup, runtime, link, frozen, parking } = instance;
  const reading = await cgroup.read();
  if (!runtime.guestGuards || frozen) return reading;
  const inside =
    parking?.parked ?? (await (await link.ready({ timeoutMs: GUARD_TIMEOUT_MS })).stats({ aside: true }));
  return { ...reading, pids: inside.processes, oomKills: reading.oomKills + inside.oomKills };
}

/** Ends the instance and removes everything that belongs to it, except the tree. */
export async function destroyInstance(resources: HostResources, instance: Instance): Promise<void> {
  await instance.link.close();
  // The caller of the start handles its failure.
  await instance.started.catch(() => {});
  await destroyRemains(resources, instance.facts);
}

/** Removes what exists of an instance. Removing an absent one succeeds. */
export async function destroyRemains(
  resources: HostResources,
  facts: Pick<InstanceFacts, 'name' | 'runtime'>,
): Promise<void> {
  const cgroup = resources.cgroups.group(facts.name);
  const runtime = resources.runtimes.get(facts.runtime);
  if (runtime) await runtime.remove(facts.name, cgroup);
  await cgroup.remove();
  const { dir } = paths(resources, facts.name);
  await endBuckets(resources, dir);
  // No process uses the range any more. A range whose directory is gone counts as free.
  resources.ranges.release(dir);
  await rm(dir, { recursive: true, force: true });
}

/**
 * When no process can write any more. What was written and not closed is written now, which may take minutes.
 */
async function endBuckets({ bucketMounts }: HostResources, dir: string): Promise<void> {
  if (!bucketMounts) return;
  const names = await readdir(bucketsOf(dir)).catch(() => []);
  await Promise.all(names.map((name) => bucketMounts.end(join(bucketsOf(dir), name))));
}

/**
 * The facts of every instance that has a directory. An instance whose facts were never written has only its
 * name.
 */
export async function listInstances(resources: HostResources): Promise<(InstanceFacts | { name: string })[]> {
  const dir = join(resources.dir, 'instances');
  await mkdir(dir, { recursive: true, mode: 0o711 });
  const names = await readdir(dir);
  return Promise.all(
    names.map(async (name) => {
      const { facts, pooled } = paths(resources, name);
      // Not a directory of an instance, or it was just removed.
      const parsed = InstanceFactsSchema.safeParse(await readJson(facts).catch(() => undefined));
      if (!parsed.success || parsed.data.name !== name) return { name };
      return { ...parsed.data, pooled: parsed.data.pooled && existsSync(pooled) };
    }),
  );
}

/** Limits that the guest must enforce: none where the kernel does. */
function guardedBy(runtime: Runtime, { memoryBytes, pids }: Partial<InstanceLimits>): GuardedLimits {
  if (!runtime.guestGuards) return {};
  return {
    ...(memoryBytes !== undefined && { memoryLimit: memoryBytes }),
    ...(pids !== undefined && { pidsLimit: pids }),
  };
}

const MiB = 1024 * 1024;
/** Threads of gVisor itself, and host threads for each process inside. */
const OWN_THREADS = 256;
const THREADS_PER_PROCESS = 2;

/**
 * Where the guest enforces limits, the kernel's limits are the second line: high enough that the guest acts
 * first, low enough that the host is safe if it does not. They include what gVisor itself needs.
 */
function hardLimits<L extends Partial<InstanceLimits>>(
  runtime: Runtime,
  limits: L,
): L & Partial<CgroupLimits> {
  if (!runtime.guestGuards) return limits;
  const { memoryBytes, pids } = limits;
  return {
    ...limits,
    ...(typeof memoryBytes === 'number' && {
      memoryBytes: memoryBytes + Math.max(192 * MiB, Math.ceil(memoryBytes / 8)),
    }),
    ...(typeof pids === 'number' && { pids: OWN_THREADS + THREADS_PER_PROCESS * pids }),
  };
}

/** Less than this may not be enough for gVisor to start in. */
const EXACT_FROM = 128 * MiB;

/**
 * The limits until the guest has answered. There is no CPU limit yet, so that it does not slow the start
 * down. gVisor shows the memory limit that it starts with as the size of the machine, so that is the
 * sandbox's own.
 */
function startLimits(runtime: Runtime, limits: InstanceLimits): CgroupLimits {
  const { memoryBytes } = limits;
  const exact = runtime.guestGuards && typeof memoryBytes === 'number' && memoryBytes >= EXACT_FROM;
  return { ...hardLimits(runtime, limits), cpus: null, ...(exact && { memoryBytes }) };
}

function changed(before: CgroupLimits, after: CgroupLimits): Partial<CgroupLimits> {
  const keys = (Object.keys(after) as (keyof CgroupLimits)[]).filter((key) => after[key] !== before[key]);
  return Object.fromEntries(keys.map((key) => [key, after[key]]));
}

async function makeRunDir({ hostId }: IdMapping, run: string): Promise<void> {
  await mkdir(run, { mode: 0o700 });
  // The mount point of the memory cgroup must exist already, because /run/cay is read-only inside.
  await mkdir(join(run, 'cgroup'));
  await chown(run, hostId, hostId);
}

/** An instance of an earlier version has no range of its own and uses the ids of its runtime. */
function idsOf(runtime: Runtime, facts: Pick<InstanceFacts, 'ids'>): IdMapping {
  return facts.ids ?? runtime.ids;
}

function runtimeOf(resources: HostResources, facts: Pick<InstanceFacts, 'runtime'>): Runtime {
  const runtime = resources.runtimes.get(facts.runtime);
  if (!runtime) throw new CayError('not_found', `Runtime "${facts.runtime}" is unknown`);
  return runtime;
}
