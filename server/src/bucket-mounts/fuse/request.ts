import { constants } from 'node:os';
import { FuseError } from './fuse-error.ts';

export const REQUEST_HEADER = 40;

export interface FuseRequest {
  opcode: number;
  /** Its number, as the 8 bytes that the answer has to have. */
  unique: Buffer;
  node: number;
  /** The process that asks, by its id on the host. */
  pid: number;
  /** What is behind the header. */
  body: Buffer;
}

/** Reads a message of the kernel. Undefined for one that is too short to be answered. */
export function readRequest(message: Buffer): FuseRequest | undefined {
  if (message.length < REQUEST_HEADER) return undefined;
  const node = message.readBigUInt64LE(16);
  return {
    opcode: message.readUInt32LE(4),
    unique: message.subarray(8, 16),
    // No node has the number 0.
    node: node > BigInt(Number.MAX_SAFE_INTEGER) ? 0 : Number(node),
    pid: message.readUInt32LE(32),
    body: message.subarray(REQUEST_HEADER),
  };
}

/** Beyond what a number can be exactly it is invalid: no offset, size or id of ours is. */
export function number64(bytes: Buffer, at: number): number {
  if (bytes.length < at + 8) throw new FuseError(constants.errno.EINVAL);
  const value = bytes.readBigUInt64LE(at);
  if (value > BigInt(Number.MAX_SAFE_INTEGER)) throw new FuseError(constants.errno.EFBIG);
  return Number(value);
}

export function number32(bytes: Buffer, at: number): number {
  if (bytes.length < at + 4) throw new FuseError(constants.errno.EINVAL);
  return bytes.readUInt32LE(at);
}

const LONGEST_NAME = 255;
const utf8 = new TextDecoder('utf-8', { fatal: true, ignoreBOM: true });

/**
 * A name that ends with a zero, and where the next thing begins. Refuses one that can be no part of a key.
 */
export function nameAt(bytes: Buffer, at: number): { name: string; end: number } {
  const end = bytes.indexOf(0, at);
  if (end < 0) throw new FuseError(constants.errno.EINVAL);
  if (end - at > LONGEST_NAME) throw new FuseError(constants.errno.ENAMETOOLONG);
  let name: string;
  try {
    name = utf8.decode(bytes.subarray(at, end));
  } catch {
    throw new FuseError(constants.errno.EILSEQ);
  }
  if (!isName(name)) throw new FuseError(constants.errno.EINVAL);
  return { name, end: end + 1 };
}

/** Whether a part of a key can be the name of a file. */
export function isName(name: string): boolean {
  return (
    name !== '' &&
    name !== '.' &&
    name !== '..' &&
    !/[/\p{Cc}\p{Cs}]/u.test(name) &&
    Buffer.byteLength(name) <= LONGEST_NAME
  );
}
