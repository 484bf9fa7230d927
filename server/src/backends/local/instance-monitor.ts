/**
 * Notices when an instance ends by itself.
 *
 * A guest whose connection ends may only be reconnecting, so its processes are checked until it is back
 * or they are gone. However often a guest hangs up, one look at a time is enough for each instance.
 */
import { setTimeout as sleep } from 'node:timers/promises';
import type { SandboxId } from '@cay/sdk/protocol';
import type { Instance } from '../../host/instances/instance.ts';
import { ignoreFailure, inBackground } from '../../lib/in-background.ts';

export interface InstanceMonitorOptions {
  isAlive(instance: Instance): Promise<boolean>;
  /** False once the sandbox has another instance, or none. */
  isCurrent(id: SandboxId, instance: Instance): boolean;
  onEnded(id: SandboxId, instance: Instance): Promise<void>;
  onError(error: unknown): void;
}

const POLL_MS = 200;
/** A frozen instance cannot dial until it is thawed, so it is checked with a growing interval up to this. */
const MAX_POLL_MS = 5_000;

export function instanceMonitor(
  options: InstanceMonitorOptions,
): (id: SandboxId, instance: Instance) => void {
  const kept = new WeakSet<Instance>();
  return (id, instance) => {
    if (kept.has(instance)) return;
    kept.add(instance);
    let looking = false;
    // It reports its own failures.
    instance.onLost = () => inBackground(look(), ignoreFailure);
    // The connection may have ended before `onLost` was set.
    if (!instance.link.current) instance.onLost();

    async function look(): Promise<void> {
      if (looking) return;
      looking = true;
      let pollMs = POLL_MS;
      try {
        while (options.isCurrent(id, instance) && !instance.link.current) {
          if (!(await isAlive())) return await options.onEnded(id, instance);
          await sleep(pollMs);
          pollMs = instance.frozen ? Math.min(pollMs * 2, MAX_POLL_MS) : POLL_MS;
        }
      } catch (error) {
        options.onError(error);
      } finally {
        looking = false;
      }
    }

    /** If the check itself fails, the instance is checked again. */
    async function isAlive(): Promise<boolean> {
      try {
        return await options.isAlive(instance);
      } catch (error) {
        options.onError(error);
        return true;
      }
    }
  };
}
