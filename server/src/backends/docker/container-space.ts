import { CayError } from '@cay/sdk/protocol';
import type { Sizing } from '../backend.ts';
import { requireSandboxId } from '../support/check.ts';
import type { DockerContext } from './docker-context.ts';

/** What a sandbox has written, as the engine counts its layer. */
export function containerSpace({ client, containers }: Pick<DockerContext, 'client' | 'containers'>): Sizing {
  return {
    async spaceOf(id, scope = {}) {
      requireSandboxId(id);
      const found = await containers.find(id, scope);
      if (!found) throw new CayError('not_found', `Sandbox "${id}" does not exist`);
      const { SizeRw } = (await client.json('GET', `/containers/${found.container}/json`, {
        action: `measure sandbox "${id}"`,
        query: { size: true },
        signal: scope.signal,
      })) as { SizeRw?: number };
      return { fileBytes: SizeRw ?? null };
    },
  };
}
