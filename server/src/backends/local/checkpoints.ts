import { CayError } from '@cay/sdk/protocol';
import type { Checkpoints } from '../../host/runtimes/runtime.ts';
import type { Engine } from './engine.ts';

/** Rejects `unsupported` where processes cannot be kept. */
export function requireCheckpoints({ resources }: Engine, runtime: string): Checkpoints {
  const checkpoints = resources.runtimes.get(runtime)?.checkpoints;
  if (checkpoints) return checkpoints;
  throw new CayError('unsupported', `Cannot keep processes: ${runtime} cannot do that`, {
    hint: 'keep the files alone, or use the runtime "runsc"',
  });
}

/** Rejects `failed_precondition` for processes that cannot continue here. */
export async function requireRevivable(
  engine: Engine,
  of: string,
  kept: { runtime: string; compatibility: string },
): Promise<void> {
  const here = await engine.resources.runtimes.get(kept.runtime)?.checkpoints?.compatibility();
  if (here === kept.compatibility) return;
  throw new CayError(
    'failed_precondition',
    `Cannot revive the processes of ${of}: they were kept by "${kept.compatibility}", and here is ${here === undefined ? `no ${kept.runtime}` : `"${here}"`}`,
    { hint: 'use its files alone, without memory', details: { reason: 'checkpoint_mismatch' } },
  );
}
