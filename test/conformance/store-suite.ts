/**
 * What every Store has to do, run against the real thing.
 *
 *     storeSuite('directory', { open: () => openDirectoryStore({ dir }) });
 */
import { CayError, type ErrorCode } from '@cay/sdk/protocol';
import fc from 'fast-check';
import { createHash } from 'node:crypto';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import type { Store } from '../../server/src/storage/store.ts';

export interface StoreHarness {
  /** The same store every time, as a new process would find it. */
  open(): Promise<Store>;
}

export function storeSuite(name: string, harness: StoreHarness): void {
  describe(`store ${name}`, () => {
    let store: Store;
    beforeEach(async () => {
      store = await harness.open();
    });
    afterEach(async () => {
      for (const { name } of await store.list()) await store.remove(name);
      await store.close();
    });

    it('gives back what was put, whatever it is and however it is cut', async () => {
      await fc.assert(
        fc.asyncProperty(fc.array(fc.uint8Array({ maxLength: 5000 }), { maxLength: 10 }), async (chunks) => {
          const sizeBytes = chunks.reduce((sum, chunk) => sum + chunk.length, 0);
          expect(await store.put('object', each(chunks))).toEqual({ name: 'object', sizeBytes });
          expect(await read(store, 'object')).toEqual(Buffer.concat(chunks));
          expect(await store.stat('object')).toEqual({ name: 'object', sizeBytes });
        }),
        { numRuns: 20 },
      );
    });

    it('keeps a large object without holding it', async () => {
      const chunk = Buffer.alloc(1024 * 1024, 'large');
      const count = 40;
      async function* large() {
        for (let index = 0; index < count; index++) yield chunk;
      }
      await store.put('large', large());
      const hash = createHash('sha256');
      for await (const part of store.get('large')) hash.update(part);
      const expected = createHash('sha256');
      for (let index = 0; index < count; index++) expected.update(chunk);
      expect(hash.digest('hex')).toBe(expected.digest('hex'));
    });

    it('is found again by the next that opens it', async () => {
      await store.put('kept', text('content'));
      await store.close();
      store = await harness.open();
      expect((await read(store, 'kept')).toString()).toBe('content');
    });

    it('keeps nothing of a put that fails, and what was there before', async () => {
      async function* failing() {
        yield Buffer.from('new');
        throw new CayError('unavailable', 'The source is gone');
      }
      await rejects(store.put('a', failing()), 'unavailable');
      expect(await store.list()).toEqual([]);
      await store.put('a', text('old'));
      await rejects(store.put('a', failing()), 'unavailable');
      expect((await read(store, 'a')).toString()).toBe('old');
      expect(await store.list()).toEqual([{ name: 'a', sizeBytes: 3 }]);
    });

    it('shows nothing of an object before all of it is there', async () => {
      const arrived = Promise.withResolvers<void>();
      const goOn = Promise.withResolvers<void>();
      async function* slow() {
        yield Buffer.from('first');
        arrived.resolve();
        await goOn.promise;
        yield Buffer.from('second');
      }
      const put = store.put('slow', slow());
      await arrived.promise;
      expect(await store.stat('slow')).toBeUndefined();
      expect(await store.list()).toEqual([]);
      goOn.resolve();
      await put;
      expect((await read(store, 'slow')).toString()).toBe('firstsecond');
    });

    it('replaces an object for those who come later, and not for those who are reading', async () => {
      const old = Buffer.alloc(3_000_000, 'old');
      await store.put('a', each([old]));
      const reading = store.get('a')[Symbol.asyncIterator]();
      const first = await reading.next();
      await store.put('a', text('new'));
      expect((await read(store, 'a')).toString()).toBe('new');
      const parts = [first.value as Uint8Array];
      for (let next = await reading.next(); !next.done; next = await reading.next()) parts.push(next.value);
      expect(Buffer.concat(parts).equals(old)).toBe(true);
    });

    it('stops putting when it is told to', async () => {
      const controller = new AbortController();
      async function* endless() {
        for (let index = 0; ; index++) {
          if (index === 3) controller.abort(new CayError('cancelled', 'Enough'));
          yield Buffer.alloc(1000);
        }
      }
      await rejects(store.put('a', endless(), { signal: controller.signal }), 'cancelled');
      expect(await store.list()).toEqual([]);
    });

    it('lists by prefix in the order of names, and forgets what is removed', async () => {
      for (const name of ['b', 'a.2', 'a.10', 'A']) await store.put(name, text(name));
      expect((await store.list()).map(({ name }) => name)).toEqual(['A', 'a.10', 'a.2', 'b']);
      expect(await store.list('a.')).toEqual([
        { name: 'a.10', sizeBytes: 4 },
        { name: 'a.2', sizeBytes: 3 },
      ]);
      await store.remove('b');
      await store.remove('b');
      expect(await store.stat('b')).toBeUndefined();
      await rejects(read(store, 'b'), 'not_found');
    });

    it.each(['', '.', '..', '.hidden', 'a/b', '../a', 'a b', '-a', 'ä', 'a\n', 'a\0', 'x'.repeat(129)])(
      'rejects the name %j everywhere',
      async (bad) => {
        await rejects(store.put(bad, text('x')), 'invalid_argument');
        await rejects(read(store, bad), 'invalid_argument');
        await rejects(store.stat(bad), 'invalid_argument');
        await rejects(store.remove(bad), 'invalid_argument');
        if (bad !== '') await rejects(store.list(bad), 'invalid_argument');
      },
    );
  });
}

async function* each(chunks: Uint8Array[]): AsyncGenerator<Uint8Array> {
  yield* chunks;
}

const text = (content: string) => each([Buffer.from(content)]);

async function read(store: Store, name: string): Promise<Buffer> {
  return Buffer.concat(await Array.fromAsync(store.get(name)));
}

async function rejects(promise: Promise<unknown>, code: ErrorCode): Promise<void> {
  await expect(promise).rejects.toMatchObject({ name: 'CayError', code });
}
