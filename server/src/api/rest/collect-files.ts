import type { FileInfo } from '@cay/sdk/protocol';
import { nextSlice } from '../../lib/slices.ts';
import { bytesExhausted, type Share } from '../http/budgets.ts';

export interface CollectFilesOptions {
  entries: number;
  /** Of what is held for the entries: their names, paths and targets, and what each costs besides. */
  bytes: number;
  share: Share | undefined;
  /** Those of one project wait for each other. */
  owner: string;
  /** Takes an entry of the listing. */
  keep(info: FileInfo): void;
}

const ENTRY_BYTES = 400;
/** Held in steps, so that not every entry has to ask. */
const HOLD_BYTES = 64 * 1024;

/**
 * Reads a listing, or its beginning if there is more than may be held, and tells which. Rejects
 * `resource_exhausted` if the project holds too much already.
 */
export async function collectFiles(
  listed: AsyncIterable<FileInfo>,
  { entries, bytes, share, owner, keep }: CollectFilesOptions,
): Promise<{ more: boolean }> {
  let count = 0;
  let size = 0;
  let held = 0;
  for await (const info of listed) {
    size += ENTRY_BYTES + info.name.length + info.path.length + (info.target?.length ?? 0);
    if (count++ === entries || size > bytes) return { more: true };
    for (; held < size; held += HOLD_BYTES) {
      if (share && !share.hold(HOLD_BYTES)) throw bytesExhausted('Cannot list');
      // The guest sends many at once.
      if (held > 0) await nextSlice(owner);
    }
    keep(info);
  }
  return { more: false };
}
