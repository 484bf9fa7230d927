import { collectBytes } from '../lib/bounded-bytes.ts';
import { diffLines, type Run } from './line-diff.ts';
import type { FilePair, Sides } from './sides.ts';

/** How one file differs: by lines, as bytes, or by more bytes than are looked at. */
export type Contrast =
  | { kind: 'text'; before: Buffer; after: Buffer; runs: Run[] }
  | { kind: 'binary'; before: Buffer; after: Buffer }
  | { kind: 'large' };

export interface Bounds {
  /** Larger files are not compared line by line. Default 1,048,576. */
  maxTextBytes?: number;
  /** Larger files are only said to differ. Default 16,777,216. */
  maxBinaryBytes?: number;
}

export async function contrast(sides: Sides, { oldPath, newPath }: FilePair, bounds: Bounds): Promise<Contrast> {
  const { maxTextBytes = 1024 * 1024, maxBinaryBytes = 16 * 1024 * 1024 } = bounds;
  const most = Math.max(maxTextBytes, maxBinaryBytes);
  const before = oldPath === undefined ? Buffer.alloc(0) : await collectBytes(sides.before(oldPath), most);
  const after = newPath === undefined ? Buffer.alloc(0) : before && (await collectBytes(sides.after(newPath), most));
  if (!before || !after) return { kind: 'large' };
  const isText = (content: Buffer) => content.length <= maxTextBytes && !content.includes(0);
  // Every byte is one character, so that whatever encoding a text has comes out as it went in.
  if (isText(before) && isText(after))
    return { kind: 'text', before, after, runs: diffLines(before.toString('latin1'), after.toString('latin1')) };
  return Math.max(before.length, after.length) <= maxBinaryBytes ? { kind: 'binary', before, after } : { kind: 'large' };
}

