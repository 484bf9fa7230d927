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

const BLOCK = 512;
const TYPES = { file: '0', directory: '5', other: '0' } as const;

export function packTar(entries: TarEntry[]): Buffer {
  const parts: Buffer[] = [];
  for (const { path, type, mode, uid, gid, data } of entries) {
    const header = Buffer.alloc(BLOCK);
    const octal = (value: number, at: number, length: number) => header.write(value.toString(8).padStart(length - 1, '0'), at);
    if (Buffer.byteLength(path) > 99) throw new RangeError(`"${path}" is too long for a plain tar entry`);
    header.write(path, 0);
    octal(mode, 100, 8);
    octal(uid, 108, 8);
    octal(gid, 116, 8);
    octal(data.length, 124, 12);
    octal(0, 136, 12);
    header.fill(' ', 148, 156);
    header.write(TYPES[type], 156);
    header.write('ustar\0' + '00', 257);
    octal(
      header.reduce((sum, byte) => sum + byte, 0),
      148,
      7,
    );
    parts.push(header, data, Buffer.alloc((BLOCK - (data.length % BLOCK)) % BLOCK));
  }
  parts.push(Buffer.alloc(2 * BLOCK));
  return Buffer.concat(parts);
}

/** The entries that have plain headers; extended headers before them are passed over. */
export function unpackTar(archive: Buffer): TarEntry[] {
  const entries: TarEntry[] = [];
  for (let at = 0; at + BLOCK <= archive.length;) {
    const header = archive.subarray(at, at + BLOCK);
    if (header.every((byte) => byte === 0)) break;
    const text = (from: number, length: number) => header.toString('utf8', from, from + length).replace(/\0.*$/s, '');
    const number = (from: number, length: number) => Number.parseInt(text(from, length).trim() || '0', 8);
    const size = number(124, 12);
    if (!Number.isSafeInteger(size) || size < 0) break;
    const flag = text(156, 1);
    if (flag !== 'x' && flag !== 'g') {
      entries.push({
        path: text(0, 100),
        type: flag === '5' ? 'directory' : flag === '0' || flag === '' ? 'file' : 'other',
        mode: number(100, 8),
        uid: number(108, 8),
        gid: number(116, 8),
        data: archive.subarray(at + BLOCK, at + BLOCK + size),
      });
    }
    at += BLOCK + Math.ceil(size / BLOCK) * BLOCK;
  }
  return entries;
}
