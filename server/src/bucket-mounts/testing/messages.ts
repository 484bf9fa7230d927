/** Messages as the kernel sends them, for tests. */
import { Opcode } from '../fuse/opcodes.ts';

export function message(
  opcode: number,
  { unique = 1n, node = 1n, body = Buffer.alloc(0) }: { unique?: bigint; node?: bigint; body?: Buffer } = {},
): Buffer {
  const bytes = Buffer.alloc(40);
  bytes.writeUInt32LE(40 + body.length, 0);
  bytes.writeUInt32LE(opcode, 4);
  bytes.writeBigUInt64LE(unique, 8);
  bytes.writeBigUInt64LE(node, 16);
  bytes.writeUInt32LE(process.pid, 32);
  return Buffer.concat([bytes, body]);
}

export function frame(content: Buffer, flags = 0): Buffer {
  const bytes = Buffer.alloc(8);
  bytes.writeUInt32LE(8 + content.length, 0);
  bytes.writeUInt32LE(flags, 4);
  return Buffer.concat([bytes, content]);
}

export const named = (...names: string[]) => Buffer.concat(names.map((name) => Buffer.from(`${name}\0`)));

/** Those that have an answer, and all others that the kernel could send. */
export const OPCODES = [...Object.values(Opcode), 0, 5, 21, 22, 33, 46, 50, 4096, 0xffff_ffff];
