import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { HANDSHAKE_BYTES, MAX_PLAIN_BYTES, noiseHandshake, type NoiseHandshake } from './noise.ts';

/** Of the test vectors of cacophony, which other implementations are held to as well. */
const VECTOR = {
  prologue: '4a6f686e2047616c74',
  key: '54686973206973206d7920417573747269616e20706572737065637469766521',
  initiator: '893e28b9dc6ca8d611ab664754b8ceb7bac5117349a4439a6b0569da977c464a',
  responder: 'bbdb4cdbd309f1a1f2e1456967fe288cadd6f712d65dc7b7793d5e63da6b375b',
  messages: [
    [
      '4c756477696720766f6e204d69736573',
      'ca35def5ae56cec33dc2036731ab14896bc4c75dbb07a61f879f8e3afa4c794479b962b8aff8485742ac32f905ba45369e2465fb59e138a93d67a0d1266b6a54',
    ],
    [
      '4d757272617920526f746862617264',
      '95ebc60d2b1fa672c1f46a8aa265ef51bfe38e7ccb39ec5be34069f144808843d6062704d5a9c422a8e834423f8c1feada7e8d0d910a1a2cd030fb584221e3',
    ],
    ['462e20412e20486179656b', 'e632c3763d7669067383433197a3baddf146e9e70ad4b4e9e59e0f'],
    ['4361726c204d656e676572', '64c6bee32ea91c8474bb4c21d7a700109ad45af77b29764ba5eb1e'],
    [
      '4a65616e2d426170746973746520536179',
      'e2fa0bed0603b62d3ccac2ecabbf3fe33f3e86514909b323361626266cb2471cc8',
    ],
    [
      '457567656e2042f6686d20766f6e2042617765726b',
      '0c01dc9cec1fe4ddd692e8dd32188aa351088dc91183639a53b57aa4692b5ebdef8b8ca111',
    ],
  ],
} as const;

const hex = (text: string) => Buffer.from(text, 'hex');
const KEY = Buffer.alloc(32, 7);

function pair(
  keys: [Buffer, Buffer] = [KEY, KEY],
  prologues: [string, string] = ['a', 'a'],
): [NoiseHandshake, NoiseHandshake] {
  return [
    noiseHandshake({ initiator: true, key: keys[0], prologue: Buffer.from(prologues[0]) }),
    noiseHandshake({ initiator: false, key: keys[1], prologue: Buffer.from(prologues[1]) }),
  ];
}

function channels() {
  const [one, other] = pair();
  other.read(one.write());
  one.read(other.write());
  return [one.split(), other.split()] as const;
}

describe('noise', () => {
  it('says what the published vectors say, on both sides', () => {
    const common = { key: hex(VECTOR.key), prologue: hex(VECTOR.prologue) };
    const initiator = noiseHandshake({ ...common, initiator: true, ephemeral: hex(VECTOR.initiator) });
    const responder = noiseHandshake({ ...common, initiator: false, ephemeral: hex(VECTOR.responder) });
    const [[first, firstSealed], [second, secondSealed], ...rest] = VECTOR.messages;
    expect(initiator.write(hex(first)).toString('hex')).toBe(firstSealed);
    expect(responder.read(hex(firstSealed)).toString('hex')).toBe(first);
    expect(responder.write(hex(second)).toString('hex')).toBe(secondSealed);
    expect(initiator.read(hex(secondSealed)).toString('hex')).toBe(second);
    const sides = [initiator.split(), responder.split()] as const;
    for (const [at, [plain, sealed]] of rest.entries()) {
      const [from, to] = at % 2 === 0 ? sides : ([sides[1], sides[0]] as const);
      expect(from.seal(hex(plain)).toString('hex')).toBe(sealed);
      expect(to.open(hex(sealed)).toString('hex')).toBe(plain);
    }
  });

  it('opens on one side what was sealed on the other, both ways and in any order of the two', () => {
    fc.assert(
      fc.property(
        fc.array(fc.tuple(fc.boolean(), fc.uint8Array({ maxLength: 400 })), { maxLength: 20 }),
        (messages) => {
          const [one, other] = channels();
          for (const [forth, plain] of messages) {
            const [from, to] = forth ? [one, other] : [other, one];
            expect(to.open(from.seal(plain)).equals(plain)).toBe(true);
          }
        },
      ),
    );
  });

  it('opens nothing that was changed, cut, repeated or made up', () => {
    fc.assert(
      fc.property(
        fc.uint8Array({ maxLength: 100 }),
        fc.nat(),
        fc.integer({ min: 1, max: 255 }),
        (plain, at, change) => {
          const [one, other] = channels();
          const sealed = one.seal(plain);
          const changed = Buffer.from(sealed);
          changed[at % changed.length]! ^= change;
          expect(() => other.open(changed)).toThrow();
          const [again, still] = channels();
          const good = again.seal(plain);
          expect(() => still.open(good.subarray(0, at % good.length))).toThrow();
          const [third, fourth] = channels();
          const once = third.seal(plain);
          fourth.open(once);
          expect(() => fourth.open(once)).toThrow();
          expect(() => other.open(plain)).toThrow();
        },
      ),
    );
  });

  it('refuses a handshake with another key, another prologue or a changed byte', () => {
    const [one, stranger] = pair([KEY, Buffer.alloc(32, 8)]);
    expect(() => stranger.read(one.write())).toThrow();
    const [two, apart] = pair([KEY, KEY], ['a', 'b']);
    expect(() => apart.read(two.write())).toThrow();
    fc.assert(
      fc.property(
        fc.nat({ max: HANDSHAKE_BYTES - 1 }),
        fc.integer({ min: 1, max: 255 }),
        fc.boolean(),
        (at, change, first) => {
          const [initiator, responder] = pair();
          const opening = initiator.write();
          if (first) opening[at]! ^= change;
          if (first) {
            expect(() => responder.read(opening)).toThrow();
            return;
          }
          responder.read(opening);
          const answer = responder.write();
          answer[at]! ^= change;
          expect(() => initiator.read(answer)).toThrow();
        },
      ),
      { numRuns: 60 },
    );
    for (const length of [0, 31, 47, 65_536]) expect(() => pair()[1].read(Buffer.alloc(length))).toThrow();
  });

  it('takes its turns, and messages of a bounded size', () => {
    const [one, other] = pair();
    expect(() => other.write()).toThrow('not the next message');
    expect(() => one.split()).toThrow('not over');
    other.read(one.write());
    expect(() => one.write()).toThrow('not the next message');
    const [seals, opens] = channels();
    expect(opens.open(seals.seal(Buffer.alloc(MAX_PLAIN_BYTES))).length).toBe(MAX_PLAIN_BYTES);
    expect(() => seals.seal(Buffer.alloc(MAX_PLAIN_BYTES + 1))).toThrow('must be 65519 or less');
    expect(() => noiseHandshake({ initiator: true, key: Buffer.alloc(31) })).toThrow('must be 32');
  });
});
