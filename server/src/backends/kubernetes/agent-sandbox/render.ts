/** What this backend makes in a cluster, told without making it. */
import type { Declared } from '../client/apply.ts';
import { declarations, type Declarations } from '../tenancy/declarations.ts';
import { renderedSpec } from '../workloads/rendered-spec.ts';
import { abilitiesWith } from './abilities.ts';
import { OWNED_KINDS, OWNED_POOL_KINDS, POOL_RIGHTS, RIGHTS, STORAGE_RIGHTS } from './needs.ts';
import { renderSandbox } from './sandbox.ts';
import { checkPoolAndStorage, type AgentSandboxOptions } from './settings.ts';

export function agentSandboxDeclarations(settings: AgentSandboxOptions): Declarations {
  const { warmPool, storage } = checkPoolAndStorage(settings);
  return declarations(settings, {
    kinds: [
      ...OWNED_KINDS,
      ...(storage ? ['PersistentVolumeClaim'] : []),
      ...(warmPool > 0 ? OWNED_POOL_KINDS : []),
    ],
    rights: [...RIGHTS, ...(storage ? STORAGE_RIGHTS : []), ...(warmPool > 0 ? POOL_RIGHTS : [])],
    async sandbox(place, id, input) {
      const { spec, options } = await renderedSpec(place, settings, input, abilitiesWith({ storage }));
      return [renderSandbox(id, spec, 1, { ...options, storage, nowMs: place.client.now() }) as Declared];
    },
  });
}
