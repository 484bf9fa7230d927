/**
 * What sandboxes have written in mounts of buckets, before they are stopped or removed: it is in the bucket,
 * or the call is refused.
 */
import { CayError, type BucketMountState, type SandboxId } from '@cay/sdk/protocol';
import { systemReason } from '@cay/sdk/system-error';
import type { BucketOpening, MountState, Unwritten } from '../../bucket-mounts/bucket-mounts.ts';
import type { SandboxRow } from '../../records/tables/sandbox-row.ts';
import type { Core } from '../core.ts';

export interface MountWrites {
  /**
   * Gives buckets all that they lack. Rejects `unavailable` with what they still lack after half a minute.
   */
  write(row: Pick<SandboxRow, 'id' | 'spec'>, doing: string): Promise<void>;
  /** Rejects with what a stop has left, which is tried again, or drops it (`force`). */
  afterStop(row: SandboxRow, options?: { force?: boolean | undefined }): Promise<void>;
  states(id: SandboxId): Promise<BucketMountState[]>;
}

const PATIENCE_MS = 30_000;
const SHOWN = 3;

export function openMountWrites(
  { records }: Pick<Core, 'records'>,
  opening: BucketOpening | undefined,
): MountWrites {
  const mountsOf = ({ spec }: Pick<SandboxRow, 'spec'>) =>
    spec.mounts?.some(
      ({ type, readOnly }: { type: string; readOnly?: boolean }) => type === 'bucket' && !readOnly,
    )
      ? opening?.mounts
      : undefined;

  return {
    async write(row, doing) {
      const unwritten = (await mountsOf(row)?.write(row.id, PATIENCE_MS)) ?? [];
      if (unwritten.length > 0) throw notWritten(row.id, doing, unwritten);
    },
    async afterStop(row, { force = false } = {}) {
      if (force) return mountsOf(row)?.giveUp(row.id);
      const states = (await mountsOf(row)?.states(row.id)) ?? [];
      const left = states.filter(({ ended }) => ended).flatMap(({ unwritten }) => unwritten);
      if (left.length === 0) return;
      const message = `It was stopped, and ${unwrittenWords(left)}. The server goes on to try`;
      if (row.state === 'stopped')
        await records.sandboxes.update(row.id, { message: message.slice(0, 1000) });
      throw new CayError('unavailable', `Sandbox "${row.id}": ${message}`, {
        hint: `see "cay bucket status ${row.id}"; to give it up, stop the sandbox with "force"`,
      });
    },
    states: async (id) => ((await opening?.mounts?.states(id)) ?? []).map(shown),
  };
}

function shown({ facts, ended, unwritten }: MountState): BucketMountState {
  const { bucket, path, prefix, readOnly } = facts;
  const failed = unwritten.find(({ failure }) => failure !== undefined);
  return {
    bucket,
    path,
    ...(prefix !== undefined && { prefix }),
    readOnly,
    ended,
    unwrittenFiles: unwritten.length,
    unwrittenBytes: unwritten.reduce((sum, { sizeBytes }) => sum + sizeBytes, 0),
    error: failed ? reasonOf(failed.failure) : null,
  };
}

/** What is not in buckets, in words. */
function unwrittenWords(unwritten: readonly Unwritten[]): string {
  const { bucket, failure } = unwritten[0]!;
  const names = unwritten.slice(0, SHOWN).map(({ path, key }) => `"${path}/${key}"`);
  const more = unwritten.length > SHOWN ? ` and ${unwritten.length - SHOWN} more` : '';
  return `${names.join(', ')}${more} is not in bucket "${bucket}": ${reasonOf(failure)}`;
}

function notWritten(id: SandboxId, doing: string, unwritten: readonly Unwritten[]): CayError {
  return new CayError('unavailable', `Cannot ${doing} sandbox "${id}": ${unwrittenWords(unwritten)}`, {
    details: {
      unwritten: unwritten
        .slice(0, 100)
        .map(({ bucket, path, key, sizeBytes }) => ({ bucket, path, key, sizeBytes })),
    },
    hint: 'try again when the bucket can be written, or give up with "force" what it lacks',
  });
}

const reasonOf = (failure: unknown): string =>
  failure instanceof Error ? systemReason(failure).slice(0, 500) : 'it is still being written';
