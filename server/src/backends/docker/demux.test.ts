import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { demux } from './demux.ts';

const frame = fc.record({
  channel: fc.constantFrom(1, 2),
  data: fc.uint8Array({ minLength: 1, maxLength: 300 }),
});

function encode(frames: { channel: number; data: Uint8Array }[]): Buffer {
  return Buffer.concat(
    frames.flatMap(({ channel, data }) => {
      const header = Buffer.alloc(8);
      header.writeUInt8(channel, 0);
      header.writeUInt32BE(data.length, 4);
      return [header, data];
    }),
  );
}

describe('demux', () => {
  it('gives each channel its bytes in order, wherever the stream is cut', () => {
    fc.assert(
      fc.property(fc.array(frame, { maxLength: 20 }), fc.integer({ min: 1, max: 64 }), (frames, size) => {
        const bytes = encode(frames);
        const found = new Map<number, Buffer[]>([
          [1, []],
          [2, []],
        ]);
        const take = demux();
        for (let at = 0; at < bytes.length; at += size) {
          take(bytes.subarray(at, at + size), (channel, data) => found.get(channel)!.push(data));
        }
        for (const channel of [1, 2]) {
          const sent = Buffer.concat(
            frames.filter((each) => each.channel === channel).map(({ data }) => data),
          );
          expect(Buffer.concat(found.get(channel)!)).toEqual(sent);
        }
      }),
    );
  });

  it('refuses a header that no engine sends', () => {
    expect(() => demux()(Buffer.from([1, 1, 0, 0, 0, 0, 0, 1]), () => {})).toThrow('broken frame header');
    expect(() => demux()(Buffer.from('HTTP/1.1'), () => {})).toThrow('broken frame header');
  });
});
