/** Frames: a header of 12 bytes, big-endian, and a payload. See `docs/reference/guest-protocol.md`. */
import type { Buffer } from 'node:buffer';

export const PROTOCOL = 1;
export const HEADER_BYTES = 12;
export const MAX_PAYLOAD_BYTES = 1_048_576;
export const MAX_DATA_BYTES = 131_072;
/** The initial credit of each direction of each stream. */
export const INITIAL_CREDIT = 262_144;
/** The initial credit of the guest on streams that it opens itself. */
export const STRICT_CREDIT = 65_536;
export const MAX_STREAM = 0xffff_ffff;

export const FRAME = {
  hello: 1,
  open: 2,
  message: 3,
  data: 4,
  credit: 5,
  end: 6,
  reset: 7,
  ping: 8,
  pong: 9,
  hangup: 10,
} as const;
export type FrameType = (typeof FRAME)[keyof typeof FRAME];

/** The longest payload by type: a receiver must buffer this much. */
export const MAX_LENGTH: readonly number[] = [
  -1,
  16_384,
  MAX_PAYLOAD_BYTES,
  MAX_PAYLOAD_BYTES,
  MAX_DATA_BYTES,
  4,
  0,
  65_536,
  64,
  64,
  1_024,
];

export interface FrameHeader {
  length: number;
  type: number;
  channel: number;
  stream: number;
}

export function writeHeader(into: Buffer, at: number, header: FrameHeader): void {
  into.writeUInt32BE(header.length, at);
  into[at + 4] = header.type;
  into[at + 5] = header.channel;
  into[at + 6] = 0;
  into[at + 7] = 0;
  into.writeUInt32BE(header.stream, at + 8);
}
