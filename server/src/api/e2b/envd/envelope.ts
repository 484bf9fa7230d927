/** Connect's framing of streams: a byte of flags, four bytes of length (big-endian), and that much JSON. */
import { CayError } from '@cay/sdk/protocol';
import { byteReader, type ByteReader } from '../../../lib/byte-reader.ts';
import { parseJson, type BodyLimits } from '../../http/read-json.ts';

const HEADER = 5;
const COMPRESSED = 1;
const END = 2;

export function encodeEnvelope(value: unknown, flags = 0): Buffer {
  const json = JSON.stringify(value);
  const length = Buffer.byteLength(json);
  const envelope = Buffer.allocUnsafe(HEADER + length);
  envelope.writeUInt8(flags, 0);
  envelope.writeUInt32BE(length, 1);
  envelope.write(json, HEADER);
  return envelope;
}

/** The last message of a stream. */
export function encodeEnd(error?: { code: number | string; message: string }): Buffer {
  return encodeEnvelope(error ? { error } : {}, END);
}

/** Messages of a request body, as a stream. Rejects `invalid_argument` if it is malformed. */
export async function* decodeEnvelopes(
  body: AsyncIterable<Uint8Array>,
  maxBytes: number,
  limits: Pick<BodyLimits, 'admit' | 'owner'> = {},
): AsyncGenerator<unknown> {
  const reader = byteReader(body);
  for (;;) {
    const head = await take(reader, HEADER);
    if (head.length === 0) return;
    const flags = head.readUInt8(0);
    const length = head.readUInt32BE(1);
    if ((flags & COMPRESSED) !== 0)
      throw new CayError('unsupported', 'Compressed messages are not supported here');
    if (length > maxBytes)
      throw new CayError('resource_exhausted', `A message is larger than ${maxBytes} bytes`);
    const json = await take(reader, length);
    if (json.length < length) throw cut();
    if ((flags & END) !== 0) return;
    yield await parseJson(json, 'A message', limits);
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
