/** What goes wrong with snapshots, in the same words for every driver. */
import { CayError, isCayError, type SnapshotId } from '@cay/sdk/protocol';
import { givenUp } from './check.ts';

/** Rejects `failed_precondition` while there are sandboxes whose files depend on the snapshot. */
export function requireNoDependents(snapshot: SnapshotId, sandboxes: readonly string[]): void {
  if (sandboxes.length === 0) return;
  throw new CayError(
    'failed_precondition',
    `Cannot remove snapshot "${snapshot}": the files of ${sandboxes.length} sandboxes depend on it`,
    {
      hint: 'remove these sandboxes first, or roll them back to another snapshot',
      details: { sandboxes },
    },
  );
}

/** Of a driver that has no memory images. `platform` names what keeps the files: `Docker`. */
export function noMemory(action: string, platform: string): CayError {
  return new CayError('unsupported', `Cannot ${action} with memory: ${platform} keeps files only`, {
    hint: 'leave out "memory" to keep the files',
  });
}

/** Why an import ends before its archive does: the caller has given up, or the archive was cut off. */
export function importFailure(error: unknown, action: string, signal: AbortSignal | undefined): CayError {
  if (signal?.aborted) return givenUp(signal);
  if (isCayError(error)) return error;
  return new CayError('unavailable', `Cannot ${action}: the archive did not come to its end`, {
    cause: error,
  });
}
