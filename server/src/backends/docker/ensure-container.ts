import { CayError, type SandboxId, type SandboxSpec } from '@cay/sdk/protocol';
import type { Semaphore } from '../../lib/semaphore.ts';
import type { CallScope, Observation } from '../backend.ts';
import { hashOf } from '../support/spec-hash.ts';
import { LABELS } from './container-config.ts';
import { observationOf } from './container-state.ts';
import { unpause, type DockerContext } from './docker-context.ts';
import type { ContainerStarter } from './start-container.ts';

interface EnsureContext extends DockerContext {
  starter: ContainerStarter;
  /** Bounds how many start at once. */
  starts: Semaphore;
  look(id: SandboxId, scope?: CallScope): Promise<Observation>;
}

/** Makes the container of a sandbox run, whatever state it is in. */
export async function ensureContainer(
  context: EnsureContext,
  id: SandboxId,
  spec: SandboxSpec,
  scope: CallScope,
): Promise<Observation> {
  const { containers, guests, look, starter, starts, volumes } = context;
  const found = await containers.find(id, scope);
  if (found && found.inspect.Config.Labels?.[LABELS.specHash] !== hashOf(spec)) {
    throw new CayError('already_exists', `Cannot ensure sandbox "${id}": it was made from a different spec`);
  }
  if (found?.inspect.State.Running && found.name.mark !== 'starting') {
    // A stop that was cut off before it did anything is taken back.
    await containers.rename(found, { id, incarnation: found.name.incarnation }, scope);
    if (!found.inspect.State.Paused) return observationOf(found.name, found.inspect);
    await unpause(context, id, found.container, scope);
    return look(id, scope);
  }
  if (!found?.inspect.State.Running) guests.hangUp(id, 'it is started again');
  await volumes.requireAll(spec, scope);
  return starts.run(() => starter.start(id, spec, found, scope));
}
