import { ABILITIES, type Ability, type Capabilities } from '@cay/sdk/protocol';
import type { Ground } from '../../host/instances/ground.ts';
import type { Template } from '../../host/templates/template.ts';

/** Asks every runtime to prove itself, and reads the rest off the machine. */
export async function localCapabilities(ground: Ground, templates: Map<string, Template>): Promise<Capabilities> {
  const runtimes: string[] = [];
  for (const runtime of ground.runtimes.values()) if ((await runtime.probe()).available) runtimes.push(runtime.name);
  const isolated = [...ground.runtimes.values()].some((runtime) => runtime.isolation !== 'none' && runtimes.includes(runtime.name));
  const { controllers } = ground.cgroups;
  const missing: Partial<Record<Ability, string>> = {};
  if (!isolated) missing.isolation = 'no isolating runtime works on this machine';
  if (!controllers.cpu) missing.cpuLimit = 'the cpu cgroup controller is missing';
  if (!controllers.memory) missing.memoryLimit = 'the memory cgroup controller is missing';
  if (!controllers.pids) missing.pidsLimit = 'the pids cgroup controller is missing';
  if (!controllers.freezer) missing.freeze = 'the freezer cgroup controller is missing';
  if (!controllers.cpu || !controllers.memory) missing.resize = 'the cpu or memory cgroup controller is missing';
  if (!ground.trees.capabilities.quota) missing.diskLimit = `the ${ground.trees.name} storage has no quota`;
  return {
    backend: 'local',
    runtimes,
    templates: [...templates.keys()],
    abilities: Object.fromEntries(ABILITIES.map((ability) => [ability, missing[ability] === undefined])) as Record<Ability, boolean>,
    notes: missing,
  };
}
