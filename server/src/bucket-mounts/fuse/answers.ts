/** What the kernel is answered, without the header. */

export interface Attributes {
  node: number;
  kind: 'file' | 'directory';
  sizeBytes: number;
  modifiedAtMs: number;
  owner: { uid: number; gid: number };
  mode: number;
  /** How long the kernel need not ask again. */
  validMs: number;
}

const S_IFDIR = 0o040000;
const S_IFREG = 0o100000;
const ATTRIBUTES = 88;
const ENTRY = 128;
const DIRENT = 24;
const DT = { directory: 4, file: 8 } as const;
const BLOCK = 512;
const UNKNOWN_INO = 0xffffffff;

export function header(unique: Buffer, error: number, bodyLength: number): Buffer {
  const bytes = Buffer.alloc(16);
  bytes.writeUInt32LE(16 + bodyLength, 0);
  bytes.writeInt32LE(-error, 4);
  unique.copy(bytes, 8);
  return bytes;
}

/** Behind it the pump ends the mount. */
export function endOfMount(): Buffer {
  return header(Buffer.alloc(8, 0xff), 0, 0);
}

function putAttributes(bytes: Buffer, at: number, attributes: Attributes): void {
  const { node, kind, sizeBytes, modifiedAtMs, owner, mode } = attributes;
  const seconds = BigInt(Math.floor(modifiedAtMs / 1000));
  const nanoseconds = (modifiedAtMs - Math.floor(modifiedAtMs / 1000) * 1000) * 1_000_000;
  bytes.writeBigUInt64LE(BigInt(node), at);
  bytes.writeBigUInt64LE(BigInt(sizeBytes), at + 8);
  bytes.writeBigUInt64LE(BigInt(Math.ceil(sizeBytes / BLOCK)), at + 16);
  for (const [index] of ['accessed', 'modified', 'changed'].entries()) {
    bytes.writeBigUInt64LE(seconds, at + 24 + index * 8);
    bytes.writeUInt32LE(Math.floor(nanoseconds), at + 48 + index * 4);
  }
  bytes.writeUInt32LE((kind === 'directory' ? S_IFDIR : S_IFREG) | mode, at + 60);
  // Of a directory it says that the number is not known: two would mean that no directory is in it.
  bytes.writeUInt32LE(1, at + 64);
  bytes.writeUInt32LE(owner.uid, at + 68);
  bytes.writeUInt32LE(owner.gid, at + 72);
  bytes.writeUInt32LE(64 * 1024, at + 80);
}

function putTimeout(bytes: Buffer, ms: number, at: { seconds: number; nanoseconds: number }): void {
  bytes.writeBigUInt64LE(BigInt(Math.floor(ms / 1000)), at.seconds);
  bytes.writeUInt32LE((ms % 1000) * 1_000_000, at.nanoseconds);
}

/** Of `getattr` and `setattr`. */
export function attributesAnswer(attributes: Attributes): Buffer {
  const bytes = Buffer.alloc(16 + ATTRIBUTES);
  putTimeout(bytes, attributes.validMs, { seconds: 0, nanoseconds: 8 });
  putAttributes(bytes, 16, attributes);
  return bytes;
}

/** Of `lookup`, `mkdir`, `create`. */
export function entryAnswer(attributes: Attributes): Buffer {
  const bytes = Buffer.alloc(ENTRY);
  bytes.writeBigUInt64LE(BigInt(attributes.node), 0);
  putTimeout(bytes, attributes.validMs, { seconds: 16, nanoseconds: 32 });
  putTimeout(bytes, attributes.validMs, { seconds: 24, nanoseconds: 36 });
  putAttributes(bytes, 40, attributes);
  return bytes;
}

export function openAnswer(handle: number, flags: number): Buffer {
  const bytes = Buffer.alloc(16);
  bytes.writeBigUInt64LE(BigInt(handle), 0);
  bytes.writeUInt32LE(flags, 8);
  return bytes;
}

export function writeAnswer(count: number): Buffer {
  const bytes = Buffer.alloc(8);
  bytes.writeUInt32LE(count, 0);
  return bytes;
}

/** A bucket has no size: what is free is more than anybody has. */
export function statfsAnswer(): Buffer {
  const bytes = Buffer.alloc(80);
  const blocks = 2n ** 38n;
  for (const at of [0, 8, 16]) bytes.writeBigUInt64LE(blocks, at);
  bytes.writeBigUInt64LE(2n ** 32n, 24);
  bytes.writeBigUInt64LE(2n ** 32n, 32);
  bytes.writeUInt32LE(4096, 40);
  bytes.writeUInt32LE(255, 44);
  bytes.writeUInt32LE(4096, 48);
  return bytes;
}

export interface DirectoryEntry {
  name: string;
  kind: 'file' | 'directory';
  /** Known: the kernel need not look it up. */
  attributes?: Attributes | undefined;
}

/** One of a directory, whose next one has that offset. */
export function direntAnswer(
  { name, kind, attributes }: DirectoryEntry,
  next: number,
  plus: boolean,
): Buffer {
  const text = Buffer.from(name);
  const start = plus ? ENTRY : 0;
  const bytes = Buffer.alloc(start + Math.ceil((DIRENT + text.length) / 8) * 8);
  if (plus && attributes) entryAnswer(attributes).copy(bytes);
  bytes.writeBigUInt64LE(BigInt(attributes?.node ?? UNKNOWN_INO), start);
  bytes.writeBigUInt64LE(BigInt(next), start + 8);
  bytes.writeUInt32LE(text.length, start + 16);
  bytes.writeUInt32LE(DT[kind], start + 20);
  text.copy(bytes, start + DIRENT);
  return bytes;
}
