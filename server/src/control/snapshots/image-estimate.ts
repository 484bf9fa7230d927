import { isCayError } from '@cay/sdk/protocol';
import type { Context } from '../context.ts';
import type { SandboxRow } from '../../records/sandboxes.ts';

/**
 * How much memory would have to be written to keep the processes of a sandbox: what they use now, or may use
 * at most.
 */
export async function imageEstimate(
  { backend, capabilities }: Pick<Context, 'backend' | 'capabilities'>,
  row: SandboxRow,
  memory: boolean | 'if possible',
): Promise<number> {
  if (memory === false || !capabilities.abilities.memorySnapshots || !backend.ability('snapshots')) return 0;
  // The image of one that hibernates becomes another name of the same files.
  if (row.pausedAs === 'hibernated') return 0;
  if (row.state !== 'active' && row.pausedAs !== 'frozen') return 0;
  try {
    return (await backend.stats(row.id)).memoryBytes;
  } catch (error) {
    if (!isCayError(error)) throw error;
    return row.spec.limits.memoryBytes ?? 0;
  }
}
