import { ABILITIES, type Ability, type Capabilities } from '@cay/sdk/protocol';
import type { Runtime } from '../../host/runtimes/runtime.ts';
import { SCRATCH } from '../../host/templates/scratch.ts';
import type { Template } from '../../host/templates/template.ts';
import { allowsRuntime } from '../../policy/allow-runtime.ts';
import type { Engine } from './engine.ts';
import { pickRuntime } from './pick-runtime.ts';

/**
 * The runtimes that are allowed and start a container here, and what is wired. Where runtimes differ, the
 * abilities are those of the default runtime.
 */
export async function localCapabilities(
  engine: Engine,
  templates: Map<string, Template>,
): Promise<Capabilities> {
  const { resources, policy } = engine;
  const runtimes: string[] = [];
  for (const one of resources.runtimes.values()) {
    if (allowsRuntime(policy, one.name) && (await one.probe()).available) runtimes.push(one.name);
  }
  const usual = await pickRuntime(engine).catch(() => undefined);
  return {
    backend: 'local',
    runtimes,
    templates: [...templates.keys()].filter((name) => name !== SCRATCH),
    ...(await abilitiesOn(engine, usual)),
  };
}

const VOLUMES = ['volumes', 'volumeSubpath', 'volumeCopies', 'volumeArchives'] as const;

/** What is wired for sandboxes of this runtime, and why the rest is missing. */
export async function abilitiesOn(
  { policy, resources }: Engine,
  usual: Runtime | undefined,
): Promise<Pick<Capabilities, 'abilities' | 'notes'>> {
  const shift = await resources.shift();
  const { controllers } = resources.cgroups;
  const missing: Partial<Record<Ability, string>> = {
    suspend: 'a pause keeps processes here; stopping keeps the files alone',
  };
  if (!usual) missing.isolation = 'no isolating runtime works on this machine';
  if (usual?.isolation === 'none')
    missing.isolation = `${usual.name} isolates nothing but the root directory`;
  if (!shift.works)
    missing.ownIds = `files cannot be shown with other ids on the ${resources.trees.name} storage: ${shift.reason}`;
  if (usual?.isolation === 'none') missing.ownIds = `${usual.name} has the server's own ids`;
  if (usual?.name === 'runsc')
    missing.xattrs = 'gVisor has no user extended attributes on the root filesystem';
  if (!controllers.cpu) missing.cpuLimit = 'the cpu cgroup controller is missing';
  if (!controllers.memory) missing.memoryLimit = 'the memory cgroup controller is missing';
  if (!controllers.pids) missing.pidsLimit = 'the pids cgroup controller is missing';
  if (!controllers.freezer) missing.freeze = 'the freezer cgroup controller is missing';
  if (!usual?.checkpoints) missing.memorySnapshots = `${usual?.name ?? 'no runtime'} cannot keep processes`;
  if (!controllers.cpu || !controllers.memory)
    missing.resize = 'the cpu or memory cgroup controller is missing';
  if (!resources.trees.capabilities.quota)
    missing.diskLimit = `the ${resources.trees.name} storage has no quota`;
  if (!resources.trees.capabilities.quota)
    missing.volumeSize = `the ${resources.trees.name} storage has no quota`;
  if (usual?.isolation === 'none')
    for (const ability of [...VOLUMES, 'tmpfs', 'bucketMounts'] as const)
      missing[ability] = `${usual.name} mounts nothing`;
  const noBuckets = resources.bucketMounts
    ? await resources.bucketMounts.probe()
    : 'the server opens no buckets';
  if (noBuckets !== undefined) missing.bucketMounts ??= noBuckets;
  if (!policy.hostPaths?.length) missing.hostPaths = 'the operator allows no directory of the host';
  return {
    abilities: Object.fromEntries(
      ABILITIES.map((ability) => [ability, missing[ability] === undefined]),
    ) as Record<Ability, boolean>,
    notes: missing,
  };
}
