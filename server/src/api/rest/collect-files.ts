import type { FileInfo } from '@cay/sdk/protocol';
import { bytesExhausted, type Share } from '../http/budgets.ts';

export interface CollectFilesOptions {
  entries: number;
  /** Of what is held for the entries: their names, paths and targets, and what each costs besides. */
  bytes: number;
  share: Share | undefined;
}

const ENTRY_BYTES = 400;
/** Held in steps, so that not every entry has to ask. */
const HOLD_BYTES = 64 * 1024;

/**
 * A listing, or its beginning if there is more than may be held. Rejects `resource_exhausted` if the project
 * holds too much already.
 */
export async function collectFiles(
  listed: AsyncIterable<FileInfo>,
  { entries, bytes, share }: CollectFilesOptions,
): Promise<{ files: FileInfo[]; more: boolean }> {
  const files: FileInfo[] = [];
  let size = 0;
  let held = 0;
  for await (const info of listed) {
    size += ENTRY_BYTES + info.name.length + info.path.length + (info.target?.length ?? 0);
    if (files.length === entries || size > bytes) return { files, more: true };
    for (; held < size; held += HOLD_BYTES)
      if (share && !share.hold(HOLD_BYTES)) throw bytesExhausted('Cannot list');
    files.push(info);
  }
  return { files, more: false };
}
