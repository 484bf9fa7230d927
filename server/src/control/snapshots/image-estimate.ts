import { isCayError } from '@cay/sdk/protocol';
import type { Core } from '../core.ts';
import type { SandboxRow } from '../../records/tables/sandbox-row.ts';

/** How many bytes a memory image of the sandbox takes: what its processes use now, or may use at most. */
export async function imageEstimate(
  { backend, capabilities }: Pick<Core, 'backend' | 'capabilities'>,
  row: SandboxRow,
  memory: boolean | 'if possible',
): Promise<number> {
  if (memory === false || !capabilities.abilities.memorySnapshots || !backend.ability('snapshots')) return 0;
  // The image of a hibernated sandbox is linked, not written again.
  if (row.pausedAs === 'hibernated') return 0;
  if (row.state !== 'active' && row.pausedAs !== 'frozen') return 0;
  try {
    return (await backend.stats(row.id)).memoryBytes;
  } catch (error) {
    if (!isCayError(error)) throw error;
    return row.spec.limits.memoryBytes ?? 0;
  }
}
