import { constants } from 'node:os';
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { CayError } from '@cay/sdk/protocol';
import { attributesAnswer, direntAnswer, endOfMount, entryAnswer, header } from './answers.ts';
import { errnoOf, FuseError } from './fuse-error.ts';
import { isName, nameAt, number32, number64, readRequest } from './request.ts';

const { errno } = constants;
const attributes = {
  node: 7,
  kind: 'file' as const,
  sizeBytes: 1_000,
  modifiedAtMs: 1_700_000_000_123,
  owner: { uid: 1, gid: 2 },
  mode: 0o644,
  validMs: 5_000,
};

describe('a message of the kernel', () => {
  it('is read from any bytes, or is none', () => {
    fc.assert(
      fc.property(fc.uint8Array({ maxLength: 200 }), (bytes) => {
        const request = readRequest(Buffer.from(bytes));
        expect(request === undefined).toBe(bytes.length < 40);
        if (request) expect(Number.isSafeInteger(request.node)).toBe(true);
      }),
    );
  });

  it('has numbers that are exact, or an error number', () => {
    fc.assert(
      fc.property(fc.uint8Array({ maxLength: 24 }), fc.nat(24), (bytes, at) => {
        for (const read of [number32, number64])
          try {
            expect(Number.isSafeInteger(read(Buffer.from(bytes), at))).toBe(true);
          } catch (error) {
            expect([errno.EINVAL, errno.EFBIG]).toContain((error as FuseError).errno);
          }
      }),
    );
  });

  it('has names that are parts of keys, or an error number', () => {
    fc.assert(
      fc.property(fc.uint8Array({ maxLength: 600 }), fc.nat(30), (bytes, at) => {
        try {
          const { name, end } = nameAt(Buffer.from(bytes), at);
          expect(isName(name)).toBe(true);
          expect(end).toBeLessThanOrEqual(bytes.length);
        } catch (error) {
          expect([errno.EINVAL, errno.ENAMETOOLONG, errno.EILSEQ]).toContain((error as FuseError).errno);
        }
      }),
    );
    for (const name of ['.', '..', 'a/b', 'a\nb', '', '\x7f', 'a'.repeat(256)])
      expect(() => nameAt(Buffer.from(`${name}\0`), 0), JSON.stringify(name)).toThrow(FuseError);
    expect(() => nameAt(Buffer.from([0xff, 0xfe, 0]), 0)).toThrow(FuseError);
    expect(nameAt(Buffer.from('ü ñ.txt\0rest\0'), 0)).toEqual({ name: 'ü ñ.txt', end: 10 });
  });
});

describe('an answer', () => {
  it('has the sizes that the kernel checks', () => {
    expect(attributesAnswer(attributes).length).toBe(104);
    expect(entryAnswer(attributes).length).toBe(128);
    expect(header(Buffer.alloc(8), 5, 100).readUInt32LE(0)).toBe(116);
    expect(header(Buffer.alloc(8), 5, 100).readInt32LE(4)).toBe(-5);
    expect(endOfMount().length).toBe(16);
  });

  it('has entries in whole steps of 8 bytes, for every name', () => {
    fc.assert(
      fc.property(
        fc.string({ unit: 'grapheme', maxLength: 60 }).filter(isName),
        fc.boolean(),
        (name, plus) => {
          const bytes = direntAnswer({ name, kind: 'file', attributes }, 3, plus);
          const start = plus ? 128 : 0;
          expect((bytes.length - start) % 8).toBe(0);
          expect(bytes.readUInt32LE(start + 16)).toBe(Buffer.byteLength(name));
          expect(bytes.toString('utf8', start + 24, start + 24 + Buffer.byteLength(name))).toBe(name);
        },
      ),
    );
  });

  it('takes any time and size of an object', () => {
    fc.assert(
      fc.property(
        fc.nat(Number.MAX_SAFE_INTEGER),
        fc.double({ min: 0, max: 1e14, noNaN: true }),
        (sizeBytes, modifiedAtMs) => {
          const bytes = entryAnswer({ ...attributes, sizeBytes, modifiedAtMs });
          expect(bytes.readBigUInt64LE(48)).toBe(BigInt(sizeBytes));
          expect(bytes.readUInt32LE(40 + 48)).toBeLessThan(1_000_000_000);
        },
      ),
    );
  });

  it('has an error number for every failure', () => {
    expect(errnoOf(new FuseError(errno.EISDIR))).toBe(errno.EISDIR);
    expect(errnoOf(new CayError('conflict', 'x'))).toBe(errno.ESTALE);
    expect(errnoOf(new CayError('resource_exhausted', 'x'))).toBe(errno.ENOSPC);
    expect(errnoOf(new CayError('unavailable', 'x'))).toBe(errno.EIO);
    expect(errnoOf(Object.assign(new Error('x'), { code: 'ENOSPC' }))).toBe(errno.ENOSPC);
    for (const odd of [new Error('x'), 'text', undefined, null, 3, {}]) expect(errnoOf(odd)).toBe(errno.EIO);
  });
});
