import fc from 'fast-check';
import { Buffer } from 'node:buffer';
import { describe, expect, it } from 'vitest';
import { isCayError } from '@cay/sdk/protocol';
import { FRAME, HEADER_BYTES, writeHeader } from './frame.ts';
import { FrameParser } from './frame-parser.ts';

interface Frame {
  type: number;
  stream: number;
  channel: number;
  payload: Buffer;
}

function encodeFrame({ type, stream, channel, payload }: Frame): Buffer {
  const header = Buffer.alloc(HEADER_BYTES);
  writeHeader(header, 0, { length: payload.length, type, channel, stream });
  return Buffer.concat([header, payload]);
}

/** All frames of the chunks, the pieces of each DATA put together. */
function parse(chunks: Buffer[]): Frame[] {
  const frames: Frame[] = [];
  const parser = new FrameParser({
    control: (type, stream, payload) =>
      frames.push({ type, stream, channel: 0, payload: Buffer.from(payload) }),
    data(stream, channel, piece, first) {
      expect(piece.length).toBeGreaterThan(0);
      const last = frames.at(-1);
      if (first || !last) frames.push({ type: FRAME.data, stream, channel, payload: Buffer.from(piece) });
      else last.payload = Buffer.concat([last.payload, piece]);
    },
  });
  for (const chunk of chunks) parser.push(chunk);
  return frames;
}

const payload = (min: number, max: number) =>
  fc.uint8Array({ minLength: min, maxLength: max, size: 'max' }).map((bytes) => Buffer.from(bytes));
const stream = fc.integer({ min: 1, max: 0xffff_ffff });
const frame: fc.Arbitrary<Frame> = fc.oneof(
  fc.record({
    type: fc.constantFrom(FRAME.open, FRAME.message),
    stream,
    channel: fc.constant(0),
    payload: payload(0, 600),
  }),
  fc.record({ type: fc.constant(FRAME.data), stream, channel: fc.nat(255), payload: payload(1, 600) }),
  fc.record({ type: fc.constant(FRAME.credit), stream, channel: fc.constant(0), payload: payload(4, 4) }),
  fc.record({ type: fc.constant(FRAME.end), stream, channel: fc.constant(0), payload: payload(0, 0) }),
  fc.record({
    type: fc.constant(FRAME.ping),
    stream: fc.constant(0),
    channel: fc.constant(0),
    payload: payload(0, 64),
  }),
);

function cut(bytes: Buffer, sizes: number[]): Buffer[] {
  const chunks: Buffer[] = [];
  for (let at = 0, i = 0; at < bytes.length; i++) {
    const size = sizes.length > 0 ? (sizes[i % sizes.length] as number) : bytes.length;
    chunks.push(bytes.subarray(at, (at += size)));
  }
  return chunks;
}

describe('FrameParser', () => {
  it('gives the same frames however the bytes are cut', () => {
    fc.assert(
      fc.property(
        fc.array(frame, { maxLength: 12 }),
        fc.array(fc.integer({ min: 1, max: 700 }), { minLength: 1, maxLength: 20 }),
        (frames, sizes) => {
          const bytes = Buffer.concat(frames.map(encodeFrame));
          expect(parse(cut(bytes, sizes))).toEqual(frames);
          expect(parse(cut(bytes, [1]))).toEqual(frames);
        },
      ),
    );
  });

  it('answers garbage with frames or with "unavailable", and nothing else', () => {
    fc.assert(
      fc.property(fc.array(payload(1, 100), { maxLength: 10 }), (chunks) => {
        try {
          parse(chunks);
        } catch (error) {
          expect(isCayError(error, 'unavailable')).toBe(true);
        }
      }),
      { numRuns: 2000 },
    );
  });

  it('hands DATA on before its frame is complete, without copying', () => {
    const pieces: Buffer[] = [];
    const parser = new FrameParser({
      control: () => {},
      data: (_stream, _channel, piece) => pieces.push(piece),
    });
    const bytes = encodeFrame({ type: FRAME.data, stream: 1, channel: 1, payload: Buffer.alloc(1000, 1) });
    const chunk = bytes.subarray(0, 500);
    parser.push(chunk);
    expect(pieces.map((piece) => piece.length)).toEqual([488]);
    expect(pieces[0]?.buffer).toBe(chunk.buffer);
  });

  it('ignores DATA without bytes', () => {
    expect(
      parse([encodeFrame({ type: FRAME.data, stream: 1, channel: 1, payload: Buffer.alloc(0) })]),
    ).toEqual([]);
  });

  const header = (length: number, type: number, channel: number, filler: number, id: number) => {
    const bytes = Buffer.alloc(HEADER_BYTES);
    writeHeader(bytes, 0, { length, type, channel, stream: id });
    bytes[6] = filler;
    return bytes;
  };
  it.each([
    ['type 0', header(0, 0, 0, 0, 1)],
    ['an unknown type', header(0, 11, 0, 0, 1)],
    ['a giant length', header(0xffff_ffff, FRAME.message, 0, 0, 1)],
    ['a message of one byte too many', header(1_048_577, FRAME.message, 0, 0, 1)],
    ['DATA of one byte too many', header(131_073, FRAME.data, 1, 0, 1)],
    ['a filler that is not zero', header(0, FRAME.end, 0, 1, 1)],
    ['a channel on a message', header(1, FRAME.message, 1, 0, 1)],
    ['DATA on stream 0', header(1, FRAME.data, 1, 0, 0)],
    ['a PING on a stream', header(0, FRAME.ping, 0, 0, 3)],
    ['a PING of 65 bytes', header(65, FRAME.ping, 0, 0, 0)],
    ['an END with a payload', header(1, FRAME.end, 0, 0, 1)],
  ])('refuses %s as soon as the header is there', (_, bytes) => {
    expect(() => parse([bytes])).toThrow(/connection to the guest was ended/);
  });
});
