import { contrast, type Bounds } from './contrast.ts';
import { filePatch } from './file-patch.ts';
import { countLines } from './line-diff.ts';
import type { FilePair } from './sides.ts';

/** What a thread is asked to do for one file. */
export interface DiffJob {
  kind: 'patch' | 'count';
  pair: FilePair;
  /** Absent: the content is what it was. `large`: it is more than is looked at. */
  contents?: { before: Uint8Array; after: Uint8Array } | 'large';
  bounds: Bounds;
  careful: boolean;
}

export interface FileCounts {
  insertions: number;
  deletions: number;
  binary: boolean;
}

export type DiffAnswer = { patch: Uint8Array } | { counts: FileCounts } | { failure: string };

export async function doDiffJob({ kind, pair, contents, bounds, careful }: DiffJob): Promise<DiffAnswer> {
  const found = contents && contrast(contents === 'large' ? undefined : asBuffers(contents), bounds, careful);
  if (kind === 'patch') return { patch: latin1(await filePatch(pair, found)) };
  const counts = found?.kind === 'text' ? countLines(found.runs) : { insertions: 0, deletions: 0 };
  return { counts: { ...counts, binary: found !== undefined && found.kind !== 'text' } };
}

function asBuffers({ before, after }: { before: Uint8Array; after: Uint8Array }): {
  before: Buffer;
  after: Buffer;
} {
  const asBuffer = ({ buffer, byteOffset, length }: Uint8Array) => Buffer.from(buffer, byteOffset, length);
  return { before: asBuffer(before), after: asBuffer(after) };
}

/** In memory of its own, which can be handed to another thread. */
function latin1(text: string): Uint8Array {
  const bytes = Buffer.allocUnsafeSlow(text.length);
  bytes.write(text, 'latin1');
  return bytes;
}
