import type { Freezing } from '../backend.ts';
import { requireSandboxId } from '../support/check.ts';
import { readyContainer, unpause, type DockerContext } from './docker-context.ts';

/** Freezing by the engine, which stops all processes of a container. */
export function containerFreezing(context: DockerContext): Freezing {
  return {
    async freeze(id, scope = {}) {
      requireSandboxId(id);
      const action = `freeze sandbox "${id}"`;
      const { container, inspect } = await readyContainer(context, id, action, scope);
      if (!inspect.State.Paused)
        await context.client.json('POST', `/containers/${container}/pause`, { action, signal: scope.signal });
    },

    async thaw(id, scope) {
      requireSandboxId(id);
      const { container, inspect } = await readyContainer(context, id, `thaw sandbox "${id}"`, scope);
      if (inspect.State.Paused) await unpause(context, id, container, scope);
    },
  };
}
