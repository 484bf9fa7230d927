/**
 * Reads what `btrfs send` prints (version 1):
 *
 *     "btrfs-stream\0" version:u32
 *     { length:u32 command:u16 crc:u32 { type:u16 length:u16 data }… }…       all little-endian
 *
 * The checksum is of the whole command, with zeros in its own place. Anything else than a whole stream up to
 * its end rejects.
 */
import { CayError } from '@cay/sdk/protocol';
import { crc32c } from './crc32c.ts';

/** A path is one character for each byte, relative to the tree's root, without a slash in front. */
export type SendCommand =
  | { kind: 'make'; path: string }
  | { kind: 'rename'; path: string; to: string }
  /** `path` is a second name of `target`. */
  | { kind: 'link'; path: string; target: string }
  | { kind: 'unlink'; path: string }
  | { kind: 'data'; path: string; offset: number; length: number }
  /** Its mode, owner or size. */
  | { kind: 'attributes'; path: string };

const MAGIC = Buffer.from('btrfs-stream\0');
const HEADER_BYTES = MAGIC.length + 4;
const COMMAND_BYTES = 10;
/** Without data the longest are two paths; extended attributes have up to 64 KiB. */
const MAX_COMMAND_BYTES = 256 * 1024;

const COMMANDS = {
  subvol: 1,
  snapshot: 2,
  mkfile: 3,
  mkdir: 4,
  mknod: 5,
  mkfifo: 6,
  mksock: 7,
  symlink: 8,
  rename: 9,
  link: 10,
  unlink: 11,
  rmdir: 12,
  setXattr: 13,
  removeXattr: 14,
  write: 15,
  clone: 16,
  truncate: 17,
  chmod: 18,
  chown: 19,
  utimes: 20,
  end: 21,
  updateExtent: 22,
} as const;

const ATTRIBUTES = {
  size: 4,
  path: 15,
  pathTo: 16,
  pathLink: 17,
  fileOffset: 18,
  data: 19,
  cloneLength: 24,
} as const;

export async function* readSendStream(chunks: AsyncIterable<Uint8Array>): AsyncGenerator<SendCommand> {
  let pending: Buffer = Buffer.alloc(0);
  let started = false;
  let ended = false;
  for await (const chunk of chunks) {
    if (ended && chunk.length > 0) throw broken('bytes after its end');
    pending = pending.length === 0 ? Buffer.from(chunk) : Buffer.concat([pending, chunk]);
    if (!started) {
      if (pending.length < HEADER_BYTES) continue;
      if (!pending.subarray(0, MAGIC.length).equals(MAGIC)) throw broken('no such stream');
      const version = pending.readUInt32LE(MAGIC.length);
      if (version !== 1) throw broken(`version ${version}`);
      pending = pending.subarray(HEADER_BYTES);
      started = true;
    }
    for (;;) {
      if (pending.length < COMMAND_BYTES) break;
      const length = pending.readUInt32LE(0);
      if (length > MAX_COMMAND_BYTES) throw broken(`a command of ${length} bytes`);
      if (pending.length < COMMAND_BYTES + length) break;
      const bytes = pending.subarray(0, COMMAND_BYTES + length);
      pending = pending.subarray(bytes.length);
      if (ended) throw broken('bytes after its end');
      const number = check(bytes);
      if (number === COMMANDS.end) ended = true;
      else {
        const command = parse(number, readAttributes(bytes.subarray(COMMAND_BYTES)));
        if (command) yield command;
      }
    }
  }
  if (!ended || pending.length > 0) throw broken('cut off');
}

/** Checks the sum and gives the number of the command. */
function check(bytes: Buffer): number {
  const sum = bytes.readUInt32LE(6);
  const whole = crc32c(bytes.subarray(COMMAND_BYTES), crc32c(Buffer.alloc(4), crc32c(bytes.subarray(0, 6))));
  if (whole !== sum) throw broken('a wrong checksum');
  return bytes.readUInt16LE(4);
}

function readAttributes(bytes: Buffer): Map<number, Buffer> {
  const attributes = new Map<number, Buffer>();
  for (let at = 0; at < bytes.length;) {
    if (at + 4 > bytes.length) throw broken('half an attribute');
    const end = at + 4 + bytes.readUInt16LE(at + 2);
    if (end > bytes.length) throw broken('an attribute that is too long');
    attributes.set(bytes.readUInt16LE(at), bytes.subarray(at + 4, end));
    at = end;
  }
  return attributes;
}

function parse(number: number, attributes: Map<number, Buffer>): SendCommand | undefined {
  const path = (type: number = ATTRIBUTES.path): string => {
    const value = attributes.get(type);
    if (!value) throw broken(`command ${number} without a path`);
    return value.toString('latin1');
  };
  const integer = (type: number): number => {
    const value = attributes.get(type);
    if (value?.length !== 8) throw broken(`command ${number} without a number`);
    const read = value.readBigUInt64LE();
    if (read > BigInt(Number.MAX_SAFE_INTEGER)) throw broken(`a number that is too large`);
    return Number(read);
  };
  switch (number) {
    case COMMANDS.mkfile:
    case COMMANDS.mkdir:
    case COMMANDS.mknod:
    case COMMANDS.mkfifo:
    case COMMANDS.mksock:
    case COMMANDS.symlink:
      return { kind: 'make', path: path() };
    case COMMANDS.rename:
      return { kind: 'rename', path: path(), to: path(ATTRIBUTES.pathTo) };
    case COMMANDS.link:
      return { kind: 'link', path: path(), target: path(ATTRIBUTES.pathLink) };
    case COMMANDS.unlink:
    case COMMANDS.rmdir:
      return { kind: 'unlink', path: path() };
    case COMMANDS.write:
      return {
        kind: 'data',
        path: path(),
        offset: integer(ATTRIBUTES.fileOffset),
        length: attributes.get(ATTRIBUTES.data)?.length ?? 0,
      };
    case COMMANDS.clone:
      return {
        kind: 'data',
        path: path(),
        offset: integer(ATTRIBUTES.fileOffset),
        length: integer(ATTRIBUTES.cloneLength),
      };
    case COMMANDS.updateExtent:
      return {
        kind: 'data',
        path: path(),
        offset: integer(ATTRIBUTES.fileOffset),
        length: integer(ATTRIBUTES.size),
      };
    case COMMANDS.truncate:
    case COMMANDS.chmod:
    case COMMANDS.chown:
      return { kind: 'attributes', path: path() };
    case COMMANDS.subvol:
    case COMMANDS.snapshot:
    case COMMANDS.setXattr:
    case COMMANDS.removeXattr:
    case COMMANDS.utimes:
      return undefined;
    default:
      throw broken(`an unknown command, ${number}`);
  }
}

function broken(what: string): CayError {
  return new CayError('internal', `Cannot read the stream of "btrfs send": ${what}`);
}
