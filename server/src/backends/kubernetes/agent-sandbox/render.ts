/** The objects that this backend makes in a cluster, without making them. */
import type { Declared } from '../client/apply.ts';
import { findRuntimes, runtimeChoice } from '../runtimes.ts';
import { checkSettings } from '../settings.ts';
import { declarations, type Declarations, type Place } from '../tenancy/declarations.ts';
import { renderedSpec } from '../workloads/rendered-spec.ts';
import { abilitiesWith } from './abilities.ts';
import { renderClaim } from './claim.ts';
import { OWNED_KINDS, OWNED_POOL_KINDS, POOL_RIGHTS, RIGHTS } from './needs.ts';
import { poolObjects, type PoolObjects } from './pool-objects.ts';
import { renderSandbox } from './sandbox.ts';
import { checkPoolAndStorage, type AgentSandboxOptions } from './settings.ts';

export function agentSandboxDeclarations(settings: AgentSandboxOptions): Declarations {
  const { warmPool, storage } = checkPoolAndStorage(settings);

  /** The warm pool as the server would apply it; its template and pool get the holder's uid as owner then. */
  async function poolIn({ client, namespace, installation }: Place): Promise<PoolObjects | undefined> {
    if (warmPool === 0) return undefined;
    const runtime = runtimeChoice(await findRuntimes(client, settings.runtimeClass), settings).pick();
    const place = { namespace, installation, settings: { ...settings, ...checkSettings(settings) } };
    return poolObjects({ ...place, nowMs: client.now() }, { warmPool, storage }, runtime);
  }

  return declarations(settings, {
    kinds: [...OWNED_KINDS, ...(warmPool > 0 ? OWNED_POOL_KINDS : [])],
    rights: [...RIGHTS, ...(warmPool > 0 ? POOL_RIGHTS : [])],
    async sandbox(place, id, input) {
      const { spec, options } = await renderedSpec(place, settings, input, abilitiesWith({ storage }));
      const nowMs = place.client.now();
      const pool = await poolIn(place);
      const made = pool?.fits(spec, options)
        ? renderClaim(id, spec, 1, { ...options, pool: pool.name, nowMs })
        : renderSandbox(id, spec, 1, { ...options, storage, nowMs });
      return [made as Declared];
    },
    async shared(place) {
      const objects = await poolIn(place);
      if (!objects) return [];
      return [objects.holder, objects.template, objects.pool].map((object) => ({ ...object }));
    },
  });
}
