/** Errors of snapshots whose memory is missing or cannot continue here. */
import { CayError, isCayError } from '@cay/sdk/protocol';
import type { SnapshotRow } from '../../records/tables/snapshot-row.ts';

/** Adds to an error of unusable memory that the files can be used without it. */
export function withMemoryHint(error: unknown): unknown {
  if (!isCayError(error, 'failed_precondition') || error.details['reason'] !== 'checkpoint_mismatch')
    return error;
  return new CayError(error.code, error.message, {
    details: error.details,
    cause: error,
    hint: error.hint ?? 'its files are intact: stop it and start it again, or set "memory" to false',
  });
}

/** A caller asks for the memory of a snapshot that has none. */
export function noMemory(snapshot: SnapshotRow): CayError {
  return new CayError('failed_precondition', `Snapshot "${snapshot.id}" has files and no memory`, {
    details: { memory: false },
    hint: 'set "memory" to false',
  });
}
