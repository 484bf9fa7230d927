/** Frames of RFC 6455: those of a client have a mask, those of a server have none. */

export const OPCODES = { text: 1, binary: 2, close: 8, ping: 9, pong: 10 } as const;
const KNOWN: readonly number[] = Object.values(OPCODES);

export interface Frame {
  opcode: number;
  payload: Buffer;
}

const MAX_PAYLOAD = 16 * 1024 * 1024;

export function encodeFrame(opcode: number, payload: Uint8Array): Buffer {
  const { length } = payload;
  const extra = length < 126 ? 0 : length < 65_536 ? 2 : 8;
  const frame = Buffer.allocUnsafe(2 + extra + 4 + length);
  frame[0] = 0x80 | opcode;
  frame[1] = 0x80 | (extra === 0 ? length : extra === 2 ? 126 : 127);
  if (extra === 2) frame.writeUInt16BE(length, 2);
  if (extra === 8) frame.writeBigUInt64BE(BigInt(length), 2);
  const at = 2 + extra;
  const mask = process.getBuiltinModule('node:crypto').randomBytes(4);
  mask.copy(frame, at);
  for (let index = 0; index < length; index++) frame[at + 4 + index] = payload[index]! ^ mask[index & 3]!;
  return frame;
}

/**
 * Every whole frame at the beginning of `held`, with what comes after it. Throws for what our server never
 * sends.
 */
export function* decodeFrames(held: Buffer): Generator<{ frame: Frame; rest: Buffer }, void, undefined> {
  let bytes = held;
  for (;;) {
    if (bytes.length < 2) return;
    const opcode = bytes[0]! & 0x0f;
    const short = bytes[1]!;
    if ((bytes[0]! & 0xf0) !== 0x80 || short > 127 || !KNOWN.includes(opcode))
      throw new Error('an unexpected WebSocket frame');
    const extra = short < 126 ? 0 : short === 126 ? 2 : 8;
    if (bytes.length < 2 + extra) return;
    const length =
      extra === 0 ? short : extra === 2 ? bytes.readUInt16BE(2) : Number(bytes.readBigUInt64BE(2));
    if (length > MAX_PAYLOAD) throw new Error('a WebSocket frame that is too long');
    const end = 2 + extra + length;
    if (bytes.length < end) return;
    const rest = bytes.subarray(end);
    yield { frame: { opcode, payload: bytes.subarray(2 + extra, end) }, rest };
    bytes = rest;
  }
}
