import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { DatagramReader, frameDatagram, MAX_DATAGRAM } from './datagram-frames.ts';

describe('datagrams in a stream', () => {
  it('come out as they went in, in whatever pieces the stream comes', () => {
    fc.assert(
      fc.property(
        fc.array(fc.uint8Array({ maxLength: 300 }), { maxLength: 20 }),
        fc.array(fc.integer({ min: 1, max: 400 }), { maxLength: 40 }),
        (datagrams, cuts) => {
          const stream = Buffer.concat(datagrams.map(frameDatagram));
          const reader = new DatagramReader();
          const out: Buffer[] = [];
          let at = 0;
          for (const cut of [...cuts, stream.length])
            out.push(...reader.push(stream.subarray(at, (at += cut))));
          expect(out.map((one) => [...one])).toEqual(datagrams.map((one) => [...one]));
        },
      ),
    );
  });

  it('are bounded', () => {
    const longest = Buffer.alloc(MAX_DATAGRAM, 1);
    expect(new DatagramReader().push(frameDatagram(longest))).toEqual([longest]);
    const longer = frameDatagram(Buffer.alloc(MAX_DATAGRAM + 1));
    expect(() => new DatagramReader().push(longer.subarray(0, 2))).toThrow(RangeError);
  });
});
