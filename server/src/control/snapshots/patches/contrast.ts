import { diffLines, type Run } from './line-diff.ts';

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

/** A file before and after, with nothing in place of what was not there. */
export interface Contents {
  before: Buffer;
  after: Buffer;
}

export const maxBytesOf = ({ maxTextBytes = MAX_TEXT, maxBinaryBytes = MAX_BINARY }: Bounds): number =>
  Math.max(maxTextBytes, maxBinaryBytes);

const MAX_TEXT = 1024 * 1024;
const MAX_BINARY = 16 * 1024 * 1024;

/**
 * `undefined` stands for more than is looked at. Without care all lines between the first and the last
 * difference are replaced.
 */
export function contrast(contents: Contents | undefined, bounds: Bounds, careful: boolean): Contrast {
  const { maxTextBytes = MAX_TEXT, maxBinaryBytes = MAX_BINARY } = bounds;
  if (!contents) return { kind: 'large' };
  const { before, after } = contents;
  const isText = (content: Buffer) => content.length <= maxTextBytes && !content.includes(0);
  // Every byte is one character, so that whatever encoding a text has comes out as it went in.
  if (isText(before) && isText(after))
    return {
      kind: 'text',
      before,
      after,
      runs: diffLines(before.toString('latin1'), after.toString('latin1'), careful),
    };
  return Math.max(before.length, after.length) <= maxBinaryBytes
    ? { kind: 'binary', before, after }
    : { kind: 'large' };
}
