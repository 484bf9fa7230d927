/**
 * An Instance is one incarnation of a sandbox on this host: a container with its cgroup, its
 * directory and the link to its guest. It runs on a tree that it does not own; the tree
 * outlives it when a sandbox is stopped and started again.
 *
 * `instance.json` is written before anything else is made and says all that is needed to find and
 * to take away the rest, so an instance is destroyed in the same way whether it is whole, half
 * made, or left behind by a server that was killed.
 *
 *     <dir>/instances/<name>/instance.json   the facts
 *                            pooled          there as long as nobody has had the instance
 *                            bundle/         what the runtime reads and writes, and where its root is mounted
 *                            run/            shown inside as /run/cay; has guest.sock
 */
import { retry } from '../../lib/retry.ts';
import { setTimeout as sleep } from 'node:timers/promises';
import { existsSync, rmSync } from 'node:fs';
import { chown, mkdir, readdir, rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { CayError, type Limits } from '@cay/sdk/protocol';
import { z } from 'zod';
import type { GuardedLimits, GuestClient } from '../../guest/guest-client.ts';
import { listenForGuest, type GuestListener } from '../../guest/listen-for-guest.ts';
import { readJson, writeFileAtomic } from '../../lib/atomic-file.ts';
import { isDiskFull } from '../../lib/disk-full.ts';
import type { Cgroup, CgroupLimits, CgroupReading } from '../cgroups/cgroup.ts';
import type { Container, IdMapping, Runtime } from '../runtimes/runtime.ts';
import type { HostResources } from '../host-resources.ts';

const InstanceFactsSchema = z.object({
  name: z.string().regex(/^i-[a-z0-9]{20}$/),
  runtime: z.string(),
  template: z.string(),
  /** The template's committed tree that the instance's own tree comes from. */
  templateTree: z.string(),
  /** The instance's active tree. */
  tree: z.string(),
  binds: z.array(z.object({ source: z.string(), target: z.string(), readOnly: z.boolean() })),
  readOnlyRoot: z.boolean(),
  openFiles: z.int(),
  bootId: z.string(),
  /** Kept for later requests rather than made for one. */
  pooled: z.boolean(),
  /** The ids of its users on the host, decided when it starts. Absent: those of its runtime. */
  ids: z.object({ hostId: z.int(), size: z.int() }).optional(),
});
export type InstanceFacts = z.infer<typeof InstanceFactsSchema>;

export interface Instance {
  readonly facts: InstanceFacts;
  readonly cgroup: Cgroup;
  readonly runtime: Runtime;
  readonly link: GuestListener;
  /** What the guest has to guard by itself, told at every hello. */
  guarded: GuardedLimits;
  /** Settles when the runtime's own command has returned; nothing is taken away before. */
  started: Promise<void>;
  /** Nothing inside runs, so nobody there can be asked. */
  frozen: boolean;
  /** What errors call it: whose it is, once it is somebody's. */
  called: string;
  /** Called when the connection to the guest ends, for whatever reason. */
  onLost: () => void;
}

export type InstanceLimits = Pick<Limits, 'cpus' | 'memoryBytes' | 'pids'>;

/**
 * From the runtime's handing over to the guest's first word. A loaded machine may be slow; a broken one never
 * answers.
 */
const GUEST_TIMEOUT_MS = 30_000;
/** How long a guest that is dialling again may take to be asked or told something. */
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
  };
}

/**
 * Makes the instance and resolves when its guest has answered. On failure everything but the tree
 * is taken away again.
 */
export function startInstance(
  resources: HostResources,
  facts: InstanceFacts,
  limits: InstanceLimits,
): Promise<Instance> {
  return launchInstance(resources, facts, limits, (runtime, container) => runtime.start(container));
}

/** As `startInstance`, with what has the runtime start the container. */
export async function launchInstance(
  resources: HostResources,
  planned: InstanceFacts,
  limits: InstanceLimits,
  launch: (runtime: Runtime, container: Container) => Promise<void>,
): Promise<Instance> {
  const runtime = runtimeOf(resources, planned);
  const cgroup = resources.cgroups.group(planned.name);
  const { dir, facts: factsFile, bundle, run, pooled } = paths(resources, planned.name);
  let facts = planned;
  let instance: Instance | undefined;
  try {
    await mkdir(dir, { recursive: true, mode: 0o711 });
    const own = runtime.isolation !== 'none' && (await resources.shift()).works;
    if (own) facts = { ...planned, ids: resources.ranges.claim(dir) };
    const ids = idsOf(runtime, facts);
    await writeFileAtomic(factsFile, JSON.stringify(facts));
    if (facts.pooled) await writeFile(pooled, '');
    await Promise.all([mkdir(bundle, { mode: 0o711 }), makeRunDir(ids, run)]);
    const [root] = await Promise.all([
      resources.trees.path(facts.tree),
      // The share of CPU time is set once the guest runs: starting must not be slowed down by it.
      cgroup.create({ ...hardLimits(runtime, limits), cpus: null }),
    ]);
    instance = await adoptInstance(resources, facts, limits);
    const answered = instance.link.ready({ timeoutMs: GUEST_TIMEOUT_MS });
    // If the runtime fails nobody waits for the guest any more.
    answered.catch(() => {});
    const started = launch(runtime, {
      name: facts.name,
      bundleDir: bundle,
      rootDir: root,
      ids,
      readOnlyRoot: facts.readOnlyRoot,
      socketDir: run,
      guestBinary: resources.guestBinary,
      binds: facts.binds,
      cgroup,
      hostname: facts.name,
      openFiles: facts.openFiles,
    });
    // The guest is often there before the runtime's command has tidied up and returned.
    instance.started = started;
    const alive = started.then(() => requireAlive(resources, facts, answered));
    await Promise.race([answered, alive.then(() => answered)]);
    if (limits.cpus !== null) await cgroup.update({ cpus: limits.cpus });
    return instance;
  } catch (error) {
    if (instance) await destroyInstance(resources, instance);
    else await destroyRemains(resources, facts);
    if (error instanceof CayError) throw error;
    throw new CayError(
      isDiskFull(error) ? 'resource_exhausted' : 'unavailable',
      `Cannot start an instance on ${facts.runtime}: ${(error as Error).message}`,
      { cause: error },
    );
  }
}

/** Rejects as soon as nothing is left that could still answer. */
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

/** Takes up an instance that an earlier server started: its guest dials the socket that is made here. */
export async function adoptInstance(
  resources: HostResources,
  facts: InstanceFacts,
  limits: InstanceLimits,
): Promise<Instance> {
  const runtime = runtimeOf(resources, facts);
  const owner = idsOf(runtime, facts).hostId;
  if (facts.ids) resources.ranges.keep(paths(resources, facts.name).dir, facts.ids);
  // A server that was killed while it captured the instance has left it standing still.
  await runtime.checkpoints?.release(facts.name);
  const instance: Omit<Instance, 'link'> = {
    facts,
    cgroup: resources.cgroups.group(facts.name),
    runtime,
    guarded: guardedBy(runtime, limits),
    started: Promise.resolve(),
    frozen: false,
    called: facts.name,
    onLost: () => {},
  };
  const link = await listenForGuest(paths(resources, facts.name).socket, {
    hello: () => ({
      sandbox: facts.name,
      incarnation: 1,
      ...instance.guarded,
      // One that is revived has the name of the one that was captured. Without a kernel of its own it cannot
      // be told.
      ...(runtime.isolation === 'kernel' && { hostname: facts.name }),
    }),
    called: () => instance.called,
    owner: { uid: owner, gid: owner },
    onLost: () => instance.onLost(),
  });
  return Object.assign(instance, { link });
}

/**
 * Notes that the instance is somebody's from now on: it never goes back to the pool, whatever becomes of the
 * record of whose it is. Synchronous, so that nothing comes between taking it and noting it.
 */
export function claimInstance(resources: HostResources, { facts }: Instance): void {
  rmSync(paths(resources, facts.name).pooled, { force: true });
}

/** Whether its first process, and any process at all, is there. */
export async function isAlive(resources: HostResources, facts: InstanceFacts): Promise<boolean> {
  if (facts.bootId !== resources.bootId) return false;
  // Without a process namespace of their own the others outlive the first.
  if ((await resources.runtimes.get(facts.runtime)?.status(facts.name)) === 'stopped') return false;
  return (await resources.cgroups.group(facts.name).processes()).length > 0;
}

/** Changes what can be changed while it runs. */
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

/** Sets the limits of the group again, as they are recorded. */
export async function restoreLimits(
  { cgroup, runtime }: Instance,
  { cpus, memoryBytes, pids }: InstanceLimits,
): Promise<void> {
  await cgroup.update(hardLimits(runtime, { cpus, memoryBytes, pids }));
}

/** Stops all its processes where they are, or lets them go on. */
export async function freezeInstance(instance: Instance, frozen: boolean): Promise<void> {
  if (frozen) instance.frozen = true;
  await (frozen ? instance.cgroup.freeze() : instance.cgroup.thaw());
  instance.frozen = frozen;
}

/**
 * Rejects `failed_precondition` when more is in use. What a process held that has just ended is given back a
 * moment later.
 */
async function requireRoom(client: GuestClient, memoryBytes: number): Promise<void> {
  let used = 0;
  const fits = await retry(
    async () => {
      used = (await client.stats()).memoryBytes;
      return used <= memoryBytes || undefined;
    },
    { timeoutMs: 1000, delayMs: 100 },
  );
  if (!fits) {
    throw new CayError(
      'failed_precondition',
      `Cannot lower the memory limit to ${memoryBytes} bytes: ${used} bytes are in use`,
    );
  }
}

/** What it uses. Where the kernel sees one process only, the guest knows what is inside it. */
export async function readInstance({ cgroup, runtime, link, frozen }: Instance): Promise<CgroupReading> {
  const reading = await cgroup.read();
  if (!runtime.guestGuards || frozen) return reading;
  const inside = await (await link.ready({ timeoutMs: GUARD_TIMEOUT_MS })).stats();
  return { ...reading, pids: inside.processes, oomKills: reading.oomKills + inside.oomKills };
}

/** Ends the instance and takes away all that it had, the tree excepted. */
export async function destroyInstance(resources: HostResources, instance: Instance): Promise<void> {
  await instance.link.close();
  // That it failed is told by whoever started it.
  await instance.started.catch(() => {});
  await destroyRemains(resources, instance.facts);
}

/** Takes away whatever of an instance exists. Absent is done. */
export async function destroyRemains(
  resources: HostResources,
  facts: Pick<InstanceFacts, 'name' | 'runtime'>,
): Promise<void> {
  const cgroup = resources.cgroups.group(facts.name);
  const runtime = resources.runtimes.get(facts.runtime);
  if (runtime) await runtime.remove(facts.name, cgroup);
  await cgroup.remove();
  const { dir } = paths(resources, facts.name);
  // Nothing runs with it any more. A range whose directory is gone counts as left over.
  resources.ranges.release(dir);
  await rm(dir, { recursive: true, force: true });
}

/** The facts of every instance that has a directory; one whose facts were never written has only its name. */
export async function listInstances(resources: HostResources): Promise<(InstanceFacts | { name: string })[]> {
  const dir = join(resources.dir, 'instances');
  await mkdir(dir, { recursive: true, mode: 0o711 });
  const names = await readdir(dir);
  return Promise.all(
    names.map(async (name) => {
      const { facts, pooled } = paths(resources, name);
      // What cannot be read is no instance of ours, or none any more.
      const parsed = InstanceFactsSchema.safeParse(await readJson(facts).catch(() => undefined));
      if (!parsed.success || parsed.data.name !== name) return { name };
      return { ...parsed.data, pooled: parsed.data.pooled && existsSync(pooled) };
    }),
  );
}

/** What has to be told to the guest: nothing where the kernel does it. */
function guardedBy(runtime: Runtime, { memoryBytes, pids }: Partial<InstanceLimits>): GuardedLimits {
  if (!runtime.guestGuards) return {};
  return {
    ...(memoryBytes !== undefined && { memoryLimit: memoryBytes }),
    ...(pids !== undefined && { pidsLimit: pids }),
  };
}

const MiB = 1024 * 1024;
/** Threads of gVisor itself, and how many the host sees for each process inside. */
const OWN_THREADS = 256;
const THREADS_PER_PROCESS = 2;

/**
 * Where the guest guards limits itself the kernel's are the second line: far enough above that the guest
 * acts first, near enough that the host is safe if it does not. What gVisor needs for itself is in there too.
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

async function makeRunDir({ hostId }: IdMapping, run: string): Promise<void> {
  await mkdir(run, { mode: 0o700 });
  // The mount point for the memory cgroup has to be there already, because /run/cay is read-only inside.
  await mkdir(join(run, 'cgroup'));
  await chown(run, hostId, hostId);
}

/** One that was started by a server that knew one range only has that of its runtime. */
function idsOf(runtime: Runtime, facts: Pick<InstanceFacts, 'ids'>): IdMapping {
  return facts.ids ?? runtime.ids;
}

function runtimeOf(resources: HostResources, facts: Pick<InstanceFacts, 'runtime'>): Runtime {
  const runtime = resources.runtimes.get(facts.runtime);
  if (!runtime) throw new CayError('not_found', `Runtime "${facts.runtime}" is unknown`);
  return runtime;
}
