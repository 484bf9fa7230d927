import type { Backend } from '../../backend.ts';
import { kubernetesBackend } from '../kubernetes-backend.ts';
import type { PodBackendKind } from '../pod-kind.ts';
import type { Runtime } from '../runtimes.ts';
import { diskBytesOf } from '../workloads/disk.ts';
import { abilitiesWith } from './abilities.ts';
import { KINDS, POOL_KINDS, POOL_RIGHTS, RIGHTS } from './needs.ts';
import { renderSandboxProbe } from './sandbox-probe.ts';
import { agentSandboxes } from './sandboxes.ts';
import { checkPoolAndStorage, type AgentSandboxOptions } from './settings.ts';
import { unusedPools } from './unused-pools.ts';
import { warmPool } from './warm-pool.ts';

/**
 * The agent-sandbox backend: a sandbox is a Sandbox of kubernetes-sigs/agent-sandbox, which keeps its pod.
 * Its lease is the Sandbox's `shutdownTime`. With storage in the settings its files are on a volume of its
 * own, and stopping it suspends it; else they are the pod's. With a warm pool in the settings, a sandbox of
 * the default spec is claimed from those that run already.
 */
export function agentSandboxBackend(options: AgentSandboxOptions): Promise<Backend> {
  const settings = checkPoolAndStorage(options);
  const usesPool = settings.warmPool > 0;
  const kind: PodBackendKind = {
    name: 'agent-sandbox',
    kinds: [...KINDS, ...(usesPool ? POOL_KINDS : [])],
    rights: [...RIGHTS, ...(usesPool ? POOL_RIGHTS : [])],
    ...abilitiesWith(settings),
    ...(settings.storage && { volumeBytes: diskBytesOf(settings.storage.size) }),
    renderProbe: renderSandboxProbe,
    in(place) {
      const pool = usesPool ? warmPool(place, settings) : undefined;
      let usual: Runtime | undefined;
      return {
        workloads: agentSandboxes(place, { storage: settings.storage, pool }),
        async prepare(runtime) {
          if (usual?.name === runtime.name) return;
          await pool?.apply(runtime);
          usual = runtime;
        },
        orphans: () => unusedPools(place, pool),
        async renewShared() {
          if (usual) await pool?.apply(usual);
        },
      };
    },
  };
  return kubernetesBackend(kind, options);
}
