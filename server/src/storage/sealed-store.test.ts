import { randomBytes } from 'node:crypto';
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeEach, describe, expect, it } from 'vitest';
import { storeSuite } from '../../../test/conformance/store-suite.ts';
import { sealedBox } from '../lib/sealed-box.ts';
import { openDirectoryStore } from './directory.ts';
import { sealedStore } from './sealed-store.ts';
import type { Store } from './store.ts';

const dir = mkdtempSync(join(tmpdir(), 'cay-sealed-'));
afterAll(() => rmSync(dir, { recursive: true, force: true }));
const box = sealedBox(randomBytes(32));
const inner = () => openDirectoryStore({ dir });

storeSuite('directory, sealed', {
  open: async () => sealedStore(await inner(), { box, alsoPlain: true }),
});

describe('a sealed store', () => {
  const CANARY = 'canary-4711';
  let store: Store;
  const put = (name: string, content: Buffer) =>
    store.put(
      name,
      (async function* () {
        yield content;
      })(),
    );
  const get = async (name: string, from = store) => Buffer.concat(await Array.fromAsync(from.get(name)));
  const file = (name: string) => join(dir, name);

  beforeEach(async () => {
    store = sealedStore(await inner(), { box, alsoPlain: false });
  });

  it('has nothing in the clear', async () => {
    await put('clear', Buffer.from(CANARY.repeat(1000)));
    expect(readFileSync(file('clear')).includes(CANARY)).toBe(false);
  });

  it('reads objects of earlier versions where it may, with their sizes', async () => {
    writeFileSync(file('old'), CANARY);
    const both = sealedStore(await inner(), { box, alsoPlain: true });
    expect((await get('old', both)).toString()).toBe(CANARY);
    expect(await both.stat('old')).toEqual({ name: 'old', sizeBytes: CANARY.length });
    writeFileSync(file('short'), 'x');
    expect((await get('short', both)).toString()).toBe('x');
    await expect(get('old')).rejects.toMatchObject({ code: 'failed_precondition' });
  });

  it('says by which key an object is sealed, if it is another', async () => {
    await put('mine', Buffer.from('x'));
    const other = sealedStore(await inner(), { box: sealedBox(randomBytes(32)), alsoPlain: false });
    await expect(get('mine', other)).rejects.toMatchObject({
      code: 'failed_precondition',
      details: { keyId: box.keyId },
    });
  });

  it('notices every kind of change', async () => {
    const content = randomBytes(3 * 1024 * 1024 + 5);
    await put('a', content);
    const sealed = readFileSync(file('a'));
    const piece = 1024 * 1024 + 16;
    const header = 46;
    const at = (number: number) => header + number * piece;
    const forgeries: Record<string, Buffer> = {
      cut: sealed.subarray(0, sealed.length - 1),
      'cut after a piece': sealed.subarray(0, at(2)),
      'cut after the header': sealed.subarray(0, header),
      'cut in the header': sealed.subarray(0, header - 10),
      longer: Buffer.concat([sealed, Buffer.alloc(16)]),
      flipped: flip(sealed, at(1) + 7),
      'another salt': flip(sealed, 20),
      swapped: Buffer.concat([
        sealed.subarray(0, header),
        sealed.subarray(at(1), at(2)),
        sealed.subarray(at(0), at(1)),
        sealed.subarray(at(2)),
      ]),
    };
    for (const [what, bytes] of Object.entries(forgeries)) {
      writeFileSync(file('a'), bytes);
      await expect(get('a'), what).rejects.toMatchObject({ code: 'failed_precondition' });
    }
    // Under the name of another object.
    writeFileSync(file('b'), sealed);
    await expect(get('b')).rejects.toMatchObject({ code: 'failed_precondition' });
    writeFileSync(file('a'), sealed);
    expect((await get('a')).equals(content)).toBe(true);
  });

  it.each([0, 1, 1024 * 1024 - 1, 1024 * 1024, 1024 * 1024 + 1, 2 * 1024 * 1024])(
    'keeps %d bytes, and knows how many they are',
    async (sizeBytes) => {
      const content = randomBytes(sizeBytes);
      expect(await put('sized', content)).toEqual({ name: 'sized', sizeBytes });
      expect(await store.stat('sized')).toEqual({ name: 'sized', sizeBytes });
      expect((await get('sized')).equals(content)).toBe(true);
    },
  );
});

function flip(bytes: Buffer, at: number): Buffer {
  const changed = Buffer.from(bytes);
  changed[at]! ^= 1;
  return changed;
}
