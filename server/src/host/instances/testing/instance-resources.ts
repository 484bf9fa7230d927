/** Real resources in a directory of its own, with instances on it that are taken away at the end. */
import { chmod, mkdir, mkdtemp, readFile, rm } from 'node:fs/promises';
import { join } from 'node:path';
import { collect } from '../../../guest/collect.ts';
import { guestBinary } from '../../../guest/guest-binary.ts';
import type { GuestExec } from '../../../guest/guest.ts';
import { randomName } from '../../../lib/random-name.ts';
import { detectCgroups } from '../../cgroups/detect.ts';
import { runcRuntime } from '../../runtimes/runc.ts';
import { runscRuntime } from '../../runtimes/runsc.ts';
import type { Runtime } from '../../runtimes/runtime.ts';
import { openSnapshotter } from '../../snapshots/open.ts';
import { baseTemplate } from '../../templates/base.ts';
import type { HostResources } from '../../host-resources.ts';
import { openIdRanges } from '../id-ranges.ts';
import {
  destroyInstance,
  startInstance,
  type Instance,
  type InstanceFacts,
  type InstanceLimits,
} from '../instance.ts';

const MiB = 1024 * 1024;
export const LIMITS: InstanceLimits = { cpus: null, memoryBytes: 512 * MiB, pids: 200 };
const IDS = { hostId: 1_879_048_192, size: 65_536 };

export interface InstanceResources {
  resources: HostResources;
  runtime: Runtime;
  /** Facts of an instance on a clone of that tree, or of the template. */
  plan(parent?: string): Promise<InstanceFacts>;
  start(limits?: InstanceLimits): Promise<Instance>;
  /** Sees to it that the instance ends with the resources. */
  keep(instance: Instance): Instance;
  /** An empty directory. */
  imageDir(): Promise<string>;
  /** The tree's directory on the host. */
  root(instance: Instance): Promise<string>;
  end(): Promise<void>;
}

/** Why instances cannot run on that runtime here, or `undefined` if they can. */
export async function whyNoInstances(name: 'runc' | 'runsc'): Promise<string | undefined> {
  if (process.getuid?.() !== 0) return 'instances need root';
  const stateDir = await mkdtemp('/tmp/cay-i-');
  await chmod(stateDir, 0o711);
  const { available, reason } = await makeRuntime(name, stateDir).probe();
  await rm(stateDir, { recursive: true, force: true });
  return available ? undefined : (reason ?? `${name} does not work here`);
}

function makeRuntime(name: 'runc' | 'runsc', stateDir: string): Runtime {
  return (name === 'runc' ? runcRuntime : runscRuntime)({ stateDir, ids: IDS });
}

export async function instanceResources(name: 'runc' | 'runsc'): Promise<InstanceResources> {
  const dir = await mkdtemp('/tmp/cay-i-');
  await chmod(dir, 0o711);
  const runtime = makeRuntime(name, join(dir, 'runtimes'));
  const cgroups = await detectCgroups({ prefix: `cay-i-${randomName(8)}` });
  const trees = await openSnapshotter({ dir: join(dir, 'storage') });
  const bootId = (await readFile('/proc/sys/kernel/random/boot_id', 'utf8')).trim();
  const resources: HostResources = {
    dir,
    trees,
    cgroups,
    runtimes: new Map([[name, runtime]]),
    guestBinary: guestBinary(),
    ranges: openIdRanges({ instancesDir: join(dir, 'instances') }),
    shift: async () => ({ works: true }),
    bootId,
  };
  const { tree: templateTree, binds } = await baseTemplate().prepare(trees, IDS);
  const instances = new Set<Instance>();

  async function plan(parent = templateTree): Promise<InstanceFacts> {
    const tree = `i-${randomName(20)}`;
    await trees.prepare(tree, { parent });
    const rest = { binds, readOnlyRoot: false, openFiles: 65_536, bootId, pooled: false };
    return { name: tree, runtime: name, template: 'base', templateTree, tree, ...rest };
  }

  function keep(instance: Instance): Instance {
    instances.add(instance);
    return instance;
  }

  return {
    resources,
    runtime,
    plan,
    keep,
    start: async (limits = LIMITS) => keep(await startInstance(resources, await plan(), limits)),
    async imageDir() {
      const path = join(dir, 'images', randomName(8));
      await mkdir(path, { recursive: true });
      return path;
    },
    root: (instance) => trees.path(instance.facts.tree),
    async end() {
      for (const instance of instances) await destroyInstance(resources, instance);
      await cgroups.destroy();
      await trees.destroy();
      await rm(dir, { recursive: true, force: true });
    },
  };
}

let counter = 0;

export function request(shell: string, more: Partial<GuestExec> = {}): GuestExec {
  counter += 1;
  return { id: `t${counter}-${randomName(6)}`, shell, env: {}, workdir: '/', user: 'root', ...more };
}

/** What the shell printed. */
export async function run(instance: Instance, shell: string): Promise<string> {
  const handle = await instance.link.guest.exec(request(shell));
  const { stdout, stderr } = await collect(handle, { maxBytes: 1024 * 1024 });
  return Buffer.concat([stdout, stderr]).toString().trim();
}
