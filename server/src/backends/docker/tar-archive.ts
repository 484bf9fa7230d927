import { BLOCK, decodeHeader, encodeHeader, paddingOf } from '../../lib/tar/header.ts';
import { padding, tarEnd } from '../../lib/tar/pack.ts';

/** As much of tar as travels through Docker's archive endpoints: a few small entries with short names. */
export interface TarEntry {
  /** Relative, without a leading slash. */
  path: string;
  type: 'file' | 'directory' | 'other';
  mode: number;
  uid: number;
  gid: number;
  data: Buffer;
}

export function packTar(entries: TarEntry[]): Buffer {
  const parts: Buffer[] = [];
  for (const { path, type, data, ...rights } of entries) {
    const kind = type === 'directory' ? 'directory' : 'file';
    parts.push(
      encodeHeader({
        name: path,
        type: kind,
        sizeBytes: data.length,
        modifiedAtMs: 0,
        target: '',
        ...rights,
      }),
      data,
    );
    parts.push(Buffer.from(padding(data.length)));
  }
  return Buffer.concat([...parts, tarEnd()]);
}

/**
 * The entries that have plain headers; extended headers before them are passed over, and what is broken ends
 * it.
 */
export function unpackTar(archive: Buffer): TarEntry[] {
  const entries: TarEntry[] = [];
  for (let at = 0; at + BLOCK <= archive.length;) {
    const block = archive.subarray(at, at + BLOCK);
    if (block.every((byte) => byte === 0)) break;
    const { letter, name, type, sizeBytes, mode, uid, gid } = decodeHeader(block, {});
    const data = archive.subarray(at + BLOCK, at + BLOCK + sizeBytes);
    if (letter !== 'x' && letter !== 'g') {
      entries.push({
        path: name,
        type: type === 'directory' || type === 'file' ? type : 'other',
        mode,
        uid,
        gid,
        data,
      });
    }
    at += BLOCK + sizeBytes + paddingOf(sizeBytes);
  }
  return entries;
}
