import type { FileInfo } from '@cay/sdk/protocol';
import { nextSlice } from '../../lib/slices.ts';
import { bytesExhausted, type Share } from '../http/budgets.ts';

export interface CollectFilesOptions {
  entries: number;
  /** Memory that the entries take: names, paths, targets, and a constant for each entry. */
  bytes: number;
  share: Share | undefined;
  /** The project. Listings of one project are collected one after the other. */
  owner: string;
  /** Called with each entry. */
  keep(info: FileInfo): void;
}

const ENTRY_BYTES = 400;
/** The budget is asked in steps of this size, and not for each entry. */
const HOLD_BYTES = 64 * 1024;

/**
 * Reads a listing up to the bounds. Resolves whether there is more. Rejects `resource_exhausted` if the
 * project holds too much already.
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
      // The guest sends many entries in one message.
      if (held > 0) await nextSlice(owner);
    }
    keep(info);
  }
  return { more: false };
}
