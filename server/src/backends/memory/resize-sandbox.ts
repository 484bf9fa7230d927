import { CayError, type Limits } from '@cay/sdk/protocol';
import { requireLimits } from '../support/check.ts';
import type { Incarnation, MemorySandbox } from './memory-sandbox.ts';

/** Rejects `failed_precondition` for a limit below what is in use. */
export function resizeSandbox(
  sandbox: MemorySandbox,
  { machine }: Incarnation,
  limits: Partial<Limits>,
): void {
  requireLimits(limits);
  const { usage } = machine;
  const inUse = {
    memoryBytes: usage.memoryBytes,
    diskBytes: sandbox.tree.usedBytes,
    pids: usage.programs,
  };
  for (const [name, used] of Object.entries(inUse)) {
    const limit = limits[name as keyof typeof inUse];
    if (limit !== undefined && limit !== null && used > limit) {
      throw new CayError(
        'failed_precondition',
        `Cannot resize sandbox "${sandbox.seen.id}": ${used} of "${name}" are in use, more than ${limit}`,
      );
    }
  }
  // The machine holds the same object, so running programs see it too.
  Object.assign(sandbox.limits, limits);
  sandbox.tree.limitBytes = sandbox.limits.diskBytes;
}
