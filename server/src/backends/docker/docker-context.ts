import { CayError, type SandboxId, type SandboxSpec } from '@cay/sdk/protocol';
import { preferredRuntime, requireRuntime } from '../../policy/allow-runtime.ts';
import type { SealedBox } from '../../lib/sealed-box.ts';
import type { Policy } from '../../policy/policy.ts';
import type { CallScope } from '../backend.ts';
import { checkSpec } from '../support/check-spec.ts';
import { observationOf } from './container-state.ts';
import type { Containers, Found } from './containers.ts';
import type { DockerClient } from './docker-client.ts';
import type { DockerVolumes } from './docker-volumes.ts';
import type { Engine } from './engine.ts';
import type { GuestConnections } from './guest-connections.ts';
import type { Images } from './images.ts';

/** What the verbs of the docker backend share. Each verb is a function that takes it. */
export interface DockerContext {
  readonly installation: string;
  readonly client: DockerClient;
  readonly containers: Containers;
  readonly images: Images;
  readonly policy: Policy;
  readonly guests: GuestConnections;
  readonly volumes: DockerVolumes;
  /** Seals the environment of sandboxes in labels. */
  readonly box: SealedBox | undefined;
  /** The engine's abilities, read once. */
  engine(): Promise<Engine>;
}

/** Rejects what cannot be or is not allowed. Resolves with the runtime of the sandbox. */
export async function checkDockerSpec(
  { engine, policy }: Pick<DockerContext, 'engine' | 'policy'>,
  spec: SandboxSpec,
): Promise<string> {
  const known = await engine();
  if (spec.runtime !== undefined) requireRuntime(policy, spec.runtime, known.runtimes);
  checkSpec(spec, 'Docker', known);
  return spec.runtime ?? preferredRuntime(policy, known.defaultRuntime, known.runtimes);
}

/** The container of a sandbox that must be ready. Rejects `not_found` or `failed_precondition`. */
export async function readyContainer(
  { containers, guests }: DockerContext,
  id: SandboxId,
  action: string,
  scope: CallScope = {},
): Promise<Found> {
  const found = await containers.find(id, scope);
  if (!found) throw new CayError('not_found', `Cannot ${action}: sandbox "${id}" does not exist`);
  const { phase, message } = observationOf(found.name, found.inspect);
  if (phase === 'ready') return found;
  guests.hangUp(id, `it is ${phase}`);
  throw new CayError(
    'failed_precondition',
    `Cannot ${action}: sandbox "${id}" is ${phase}${message ? ` (${message})` : ''}`,
  );
}

export async function unpause(
  { client }: DockerContext,
  id: SandboxId,
  container: string,
  { signal }: CallScope = {},
): Promise<void> {
  await client.json('POST', `/containers/${container}/unpause`, { action: `thaw sandbox "${id}"`, signal });
}
