import { CayError, type Limits, type SandboxSpec } from '@cay/sdk/protocol';
import type { Runtime } from '../../host/runtimes/runtime.ts';
import type { HostResources } from '../../host/host-resources.ts';

/** Rejects `unsupported` for mounts where nothing isolates. */
export function requireMountable({ mounts = [] }: SandboxSpec, runtime: Runtime): void {
  if (mounts.length === 0 || runtime.isolation !== 'none') return;
  throw new CayError('unsupported', `Cannot mount anything in a sandbox on ${runtime.name}`, {
    hint: 'choose another runtime',
  });
}

/** Rejects `unsupported` for a limit that cannot be enforced here. */
export function requireEnforceable(
  limits: Limits,
  resources: Pick<HostResources, 'cgroups' | 'trees'>,
): void {
  const { controllers } = resources.cgroups;
  const refuse = (limit: string, why: string) =>
    new CayError('unsupported', `Cannot enforce the limit "${limit}": ${why}`);
  if (limits.cpus !== null && !controllers.cpu) throw refuse('cpus', 'this machine has no cpu controller');
  if (limits.memoryBytes !== null && !controllers.memory)
    throw refuse('memoryBytes', 'this machine has no memory controller');
  if (limits.pids !== null && !controllers.pids) throw refuse('pids', 'this machine has no pids controller');
  if (limits.diskBytes !== null && !resources.trees.capabilities.quota) {
    throw refuse('diskBytes', `the ${resources.trees.name} storage has no quota`);
  }
}
