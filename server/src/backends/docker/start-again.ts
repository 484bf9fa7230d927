/** What a container that exists needs before it runs again. */
import type { SandboxId, SandboxSpec } from '@cay/sdk/protocol';
import { requireRuntime } from '../../policy/allow-runtime.ts';
import type { CallScope } from '../backend.ts';
import { resources } from './container-config.ts';
import type { Found } from './containers.ts';
import type { DockerContext } from './docker-context.ts';

/** A container that was made with what the operator does not allow any more does not run again. */
export function requireStartable(
  { policy, images }: Pick<DockerContext, 'images' | 'policy'>,
  { inspect }: Found,
  { template }: SandboxSpec,
): void {
  const { Runtime: runtime } = inspect.HostConfig;
  if (runtime !== undefined) requireRuntime(policy, runtime, [runtime]);
  images.requireAllowed(template);
}

/** Gives a container that does not run the limits of today. */
export async function relimit(
  { client, engine }: Pick<DockerContext, 'client' | 'engine'>,
  id: SandboxId,
  { container, inspect }: Found,
  { limits }: SandboxSpec,
  { signal }: CallScope,
): Promise<void> {
  const { cpus, memoryBytes, pids } = limits;
  const wanted = Object.entries(resources({ cpus, memoryBytes, pids }, (await engine()).machine));
  const has: Record<string, unknown> = { ...inspect.HostConfig };
  // The engine reports an absent limit of processes as nothing at all.
  if (wanted.every(([name, value]) => (has[name] ?? -1) === value)) return;
  await client.json('POST', `/containers/${container}/update`, {
    action: `limit sandbox "${id}"`,
    body: Object.fromEntries(wanted),
    signal,
  });
}
