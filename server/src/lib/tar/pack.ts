/** Writing tar archives. The same input always gives the same bytes. */
import { BLOCK, encodeHeader, paddingOf } from './header.ts';

export interface PackOptions {
  /** Default 0644. */
  mode?: number;
  /** Default 0, the epoch. */
  modifiedAtMs?: number;
}

export const TAR_END_BYTES = 2 * BLOCK;

/** Two blocks of zeros, the end of every archive. */
export function tarEnd(): Uint8Array {
  return new Uint8Array(TAR_END_BYTES);
}

/** The header of a regular file that belongs to root. `sizeBytes` of content and the padding follow. */
export function fileHeader(
  name: string,
  sizeBytes: number,
  { mode = 0o644, modifiedAtMs = 0 }: PackOptions = {},
): Buffer {
  return encodeHeader({ name, type: 'file', sizeBytes, mode, uid: 0, gid: 0, modifiedAtMs, target: '' });
}

/** The header of a symlink that belongs to root. */
export function symlinkHeader(name: string, target: string): Buffer {
  const rights = { mode: 0o777, uid: 0, gid: 0 };
  return encodeHeader({ name, type: 'symlink', sizeBytes: 0, modifiedAtMs: 0, target, ...rights });
}

/** The zeros after a content of that size. */
export function padding(sizeBytes: number): Uint8Array {
  return new Uint8Array(paddingOf(sizeBytes));
}

/** A regular file that belongs to root: header, content and padding. Yields no empty chunk. */
export function* packFile(
  name: string,
  content: Uint8Array,
  options?: PackOptions,
): Generator<Uint8Array, void, undefined> {
  yield fileHeader(name, content.length, options);
  if (content.length > 0) yield content;
  const rest = padding(content.length);
  if (rest.length > 0) yield rest;
}
