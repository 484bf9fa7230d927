import { CayError, type SandboxId } from '@cay/sdk/protocol';
import type { Observation, StopOptions } from '../backend.ts';
import { observationOf } from './container-state.ts';
import { unpause, type DockerContext } from './docker-context.ts';

const DEFAULT_GRACE_MS = 10_000;
/** How much longer than its grace a stop may take before it is forced. */
const STOP_SLACK_MS = 2_000;
const KILL_MS = 30_000;

/** Ends the processes of a sandbox and keeps its container. */
export async function stopContainer(
  context: DockerContext,
  id: SandboxId,
  { graceMs = DEFAULT_GRACE_MS, ...scope }: StopOptions,
): Promise<Observation> {
  const { containers, guests } = context;
  const found = await containers.find(id, scope);
  if (!found) throw new CayError('not_found', `Cannot stop sandbox "${id}": it does not exist`);
  // Recorded first, so that an end during a restart of the server is not taken for a crash.
  const name = { ...found.name, mark: 'stopping' as const };
  await containers.rename(found, name, scope);
  if (found.inspect.State.Running) {
    if (found.inspect.State.Paused) await unpause(context, id, found.container, scope);
    await guests
      .open(found)
      .link.ready({ timeoutMs: STOP_SLACK_MS })
      .then((guest) => guest.shutdown(graceMs))
      .catch(() => {}); // A guest that does not answer is ended by force.
    const ended = !guests.get(id)?.link.current && (await containers.ended(found, STOP_SLACK_MS));
    guests.hangUp(id, 'it was stopped');
    if (!ended) {
      await containers.kill(found);
      await containers.ended(found, KILL_MS);
    }
  }
  const { incarnation, uid, runtime } = observationOf(name, found.inspect);
  return { id, phase: 'stopped', incarnation, uid, runtime };
}
