/** Connect's framing of streams: a byte of flags, four bytes of length (big-endian), and that many bytes. */
import { CayError } from '@cay/sdk/protocol';
import { byteReader, type ByteReader } from '../../../lib/byte-reader.ts';

const HEADER = 5;
const COMPRESSED = 1;
const END = 2;
/** A message that is not larger is decoded without being counted. */
const SMALL_BYTES = 64 * 1024;

export function encodeEnvelope(message: Buffer, flags = 0): Buffer {
  const envelope = Buffer.allocUnsafe(HEADER + message.length);
  envelope.writeUInt8(flags, 0);
  envelope.writeUInt32BE(message.length, 1);
  message.copy(envelope, HEADER);
  return envelope;
}

/** The last message of a stream. It is JSON, however the others are encoded. */
export function encodeEnd(error?: { code: number | string; message: string }): Buffer {
  return encodeEnvelope(Buffer.from(JSON.stringify(error ? { error } : {})), END);
}

/**
 * Messages of a request body, as a stream. Rejects `invalid_argument` if it is malformed. `admit` is called
 * with the size of a large message before it is given; it throws if that would be too much.
 */
export async function* decodeEnvelopes(
  body: AsyncIterable<Uint8Array>,
  maxBytes: number,
  admit?: (bytes: number) => void,
): AsyncGenerator<Buffer> {
  const reader = byteReader(body);
  try {
    for (;;) {
      const head = await take(reader, HEADER);
      if (head.length === 0) return;
      const flags = head.readUInt8(0);
      const length = head.readUInt32BE(1);
      if ((flags & COMPRESSED) !== 0)
        throw new CayError('unsupported', 'Compressed messages are not supported here');
      if (length > maxBytes)
        throw new CayError('resource_exhausted', `A message is larger than ${maxBytes} bytes`);
      const message = await take(reader, length);
      if (message.length < length) throw cut();
      if ((flags & END) !== 0) return;
      if (length > SMALL_BYTES) admit?.(length);
      yield message;
    }
  } finally {
    await reader.close();
  }
}

async function take(reader: ByteReader, length: number): Promise<Buffer> {
  try {
    return await reader.exactly(length);
  } catch {
    throw cut();
  }
}

const cut = () => new CayError('invalid_argument', 'The body ends in the middle of a message');
