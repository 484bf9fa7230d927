/** The headers of tar: ustar with pax records, as POSIX has them, and GNU's long names when reading. */

export const BLOCK = 512;

export type EntryType = 'file' | 'directory' | 'symlink' | 'hardlink' | 'other';

export interface Entry {
  name: string;
  type: EntryType;
  sizeBytes: number;
  /** Permission bits, those for special rights included. */
  mode: number;
  uid: number;
  gid: number;
  modifiedAtMs: number;
  /** Of a link. */
  target: string;
}

const LETTERS = { file: '0', hardlink: '1', symlink: '2', directory: '5' } as const;
const TYPES: Record<string, EntryType> = {
  '0': 'file',
  '\u0000': 'file',
  '7': 'file',
  '1': 'hardlink',
  '2': 'symlink',
  '5': 'directory',
};

export const paddingOf = (size: number) => (BLOCK - (size % BLOCK)) % BLOCK;

export function encodeHeader(entry: Entry & { type: keyof typeof LETTERS }): Buffer {
  const name = entry.type === 'directory' ? `${entry.name}/` : entry.name;
  const records = [
    ...(fits(name) ? [] : [record('path', name)]),
    ...(fits(entry.target) ? [] : [record('linkpath', entry.target)]),
    ...(entry.sizeBytes < 8 ** 11 ? [] : [record('size', String(entry.sizeBytes))]),
  ];
  const main = block({ ...entry, name, letter: LETTERS[entry.type] });
  if (records.length === 0) return main;
  const body = Buffer.concat(records);
  const pax = block({
    name: 'pax',
    letter: 'x',
    sizeBytes: body.length,
    mode: 0o644,
    uid: 0,
    gid: 0,
    modifiedAtMs: 0,
    target: '',
  });
  return Buffer.concat([pax, body, Buffer.alloc(paddingOf(body.length)), main]);
}

/** Beyond ASCII the old header has no encoding, and beyond 100 bytes no room. */
const fits = (text: string) => Buffer.byteLength(text) <= 100 && /^[\x20-\x7e]*$/.test(text);

/** `LENGTH KEY=VALUE\n`, where the length counts its own digits. */
function record(key: string, value: string): Buffer {
  const rest = Buffer.byteLength(` ${key}=${value}\n`);
  let length = rest + String(rest).length;
  if (String(length).length + rest > length) length++;
  return Buffer.from(`${length} ${key}=${value}\n`);
}

function block(fields: Omit<Entry, 'type'> & { letter: string }): Buffer {
  const bytes = Buffer.alloc(BLOCK);
  const octal = (value: number, at: number, digits: number) =>
    bytes.write(value.toString(8).padStart(digits, '0'), at, digits);
  bytes.write(fields.name, 0, 100);
  octal(fields.mode & 0o7777, 100, 7);
  octal(fields.uid & 0o7777777, 108, 7);
  octal(fields.gid & 0o7777777, 116, 7);
  octal(fields.sizeBytes < 8 ** 11 ? fields.sizeBytes : 0, 124, 11);
  octal(Math.max(0, Math.floor(fields.modifiedAtMs / 1000)), 136, 11);
  bytes.fill(' ', 148, 156);
  bytes.write(fields.letter, 156);
  bytes.write(fields.target, 157, 100);
  bytes.write('ustar\u000000', 257);
  octal(
    bytes.reduce((sum, byte) => sum + byte, 0),
    148,
    6,
  );
  bytes[154] = 0;
  return bytes;
}

/** What extension headers said about the entry that follows. */
export type Extended = Record<string, string>;

/** Throws a plain `Error` that says what is wrong: the caller knows what it was about to do. */
export function decodeHeader(head: Buffer, extended: Extended): Entry & { letter: string } {
  let sum = 0;
  for (let at = 0; at < BLOCK; at++) sum += at >= 148 && at < 156 ? 32 : head[at]!;
  if (sum !== octalAt(head, 148, 8)) throw new Error('a header is broken');
  const letter = String.fromCharCode(head[156]!);
  const sizeBytes = extended['size'] === undefined ? octalAt(head, 124, 12) : Number(extended['size']);
  if (!Number.isSafeInteger(sizeBytes) || sizeBytes < 0) throw new Error('a size is wrong');
  const prefix = textAt(head, 257, 6) === 'ustar' && head[262] === 0 ? textAt(head, 345, 155) : '';
  const short = textAt(head, 0, 100);
  return {
    letter,
    name: extended['path'] ?? (prefix ? `${prefix}/${short}` : short),
    type: TYPES[letter] ?? 'other',
    sizeBytes,
    mode: octalAt(head, 100, 8) & 0o7777,
    uid: octalAt(head, 108, 8),
    gid: octalAt(head, 116, 8),
    modifiedAtMs: octalAt(head, 136, 12) * 1000,
    target: extended['linkpath'] ?? textAt(head, 157, 100),
  };
}

function octalAt(head: Buffer, at: number, length: number): number {
  const digits = textAt(head, at, length).trim();
  if (!/^[0-7]*$/.test(digits)) throw new Error('a number is broken');
  return digits === '' ? 0 : Number.parseInt(digits, 8);
}

export function textAt(bytes: Buffer, at: number, length: number): string {
  const field = bytes.subarray(at, at + length);
  const end = field.indexOf(0);
  return field.toString('utf8', 0, end < 0 ? field.length : end);
}

export function decodeRecords(body: Buffer): Extended {
  const records: Extended = Object.create(null) as Extended;
  for (let at = 0; at < body.length;) {
    const space = body.indexOf(0x20, at);
    const length = space < 0 ? Number.NaN : Number(body.toString('latin1', at, space));
    const equals = body.indexOf(0x3d, space);
    if (
      !Number.isSafeInteger(length) ||
      length <= 0 ||
      equals < 0 ||
      at + length > body.length ||
      equals >= at + length
    ) {
      throw new Error('a pax record is broken');
    }
    records[body.toString('utf8', space + 1, equals)] = body.toString('utf8', equals + 1, at + length - 1);
    at += length;
  }
  return records;
}
